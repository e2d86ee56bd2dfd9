"""Tables against what they must say, cell by cell."""

from __future__ import annotations

from dataclasses import replace

from dflash_gguf.bench.figures import reckon
from dflash_gguf.bench.labels import blocks_of, column_names
from dflash_gguf.bench.notes import Notes
from dflash_gguf.bench.records import ArmFacts, Bench
from dflash_gguf.bench.tables import (
    Table,
    accept_length,
    accept_pairs,
    acceptance,
    all_tables,
    by_concurrency,
    details,
    shares,
    throughput,
)

from ..support.measured import AUTO, BASE, MTP3, WIDE4, WIDE8, bench, cards, cell, turn


def _table(made: Bench, title: str) -> Table:
    (table,) = (table for table in all_tables(made, reckon(made)) if table.title.startswith(title))
    return table


def test_throughput_as_the_card_has_it() -> None:
    figures = reckon(cards())
    table = throughput(figures, Notes(cards(), figures), 1)
    assert table.title == "Throughput and speed-up, concurrency 1: output tok/s (speed-up)"
    assert table.header == (
        *("Workload", "Baseline (dflash-gguf)", "MTP steps=3 (llama-server)"),
        *("DFlash block=4 (dflash-gguf)", "DFlash block=8 (dflash-gguf)"),
    )
    # runs at full, half and full pace: the median is at full pace
    assert table.rows == (
        ("gsm8k", "100.0 (1.00x)", "200.0 (2.00x)", "250.0 (2.50x)", "**300.0 (3.00x)**"),
        ("mbpp", "50.0 (1.00x)", "100.0 (2.00x)", "125.0 (2.50x)", "**150.0 (3.00x)**"),
    )


def test_names_are_the_cards_with_a_single_engine() -> None:
    names = column_names((BASE, replace(MTP3, speaks_for="dflash-gguf"), WIDE4, AUTO))
    assert list(names.values()) == [
        "Baseline",
        "MTP steps=3",
        "DFlash block=4",
        "DFlash block=auto",
    ]


def test_arms_of_one_name_are_told_apart() -> None:
    twice = (ArmFacts("a", "dflash", 4, "sglang"), ArmFacts("b", "dflash", 4, "sglang"))
    assert list(column_names(twice).values()) == ["DFlash block=4: a", "DFlash block=4: b"]


def test_a_baseline_is_never_bold_and_what_is_missing_is_a_dash() -> None:
    made = bench(
        *(cell(BASE, 1, 90.0), cell(WIDE4, 1, 80.0), cell(WIDE8, 1, 30.0)),
        *(cell(BASE, 1, 5.0, workload="v"), cell(WIDE8, 1, 6.0, workload="v")),
    )
    assert _table(made, "Throughput").rows == (
        ("w", "90.0 (1.00x)", "**80.0 (0.89x)**", "30.0 (0.33x)"),
        ("v", "5.00 (1.00x)", "-", "**6.00 (1.20x)**"),
    )


def test_without_a_baseline_there_is_no_speedup() -> None:
    made = bench(cell(WIDE4, 1, 80.0), cell(WIDE8, 1, 90.0))
    table = _table(made, "Throughput")
    assert table.rows == (("w", "80.0", "**90.0**"),)
    assert any("no baseline was measured" in note for note in table.notes)


def test_by_concurrency_as_the_other_card_has_it() -> None:
    figures = reckon(cards())
    notes = Notes(cards(), figures)
    table = by_concurrency(figures, notes, 4)
    assert table.title == "Block size 4: output tok/s (speed-up)"
    # three steps of MTP verify as many rows as a block of 4
    assert table.header == (
        *("Task", "Concurrency", "AR (dflash-gguf)", "MTP (llama-server)", "DFlash (dflash-gguf)"),
    )
    assert table.rows == (
        ("gsm8k", "1", "100", "200 (2.0x)", "250 (2.5x)"),
        ("", "8", "800", "1600 (2.0x)", "2000 (2.5x)"),
        ("mbpp", "1", "50.0", "100 (2.0x)", "125 (2.5x)"),
        ("", "8", "400", "800 (2.0x)", "1000 (2.5x)"),
    )
    assert by_concurrency(figures, notes, 8).header[2:] == ("AR", "DFlash")


def test_blocks_ascend_and_words_come_last() -> None:
    sixteen = replace(WIDE8, name="wide-16", width=16)
    assert blocks_of((AUTO, sixteen, WIDE4, MTP3, BASE)) == (4, 16, "auto")


def test_accept_length_marks_the_higher_of_a_pair() -> None:
    figures = reckon(cards())
    table = accept_length(figures, Notes(cards(), figures))
    assert table.title == "Accept length, concurrency 1"
    assert table.header[1:] == (
        *("MTP steps=3 (llama-server)", "DFlash block=4 (dflash-gguf)"),
        "DFlash block=8 (dflash-gguf)",
    )
    # 10 tokens in 4, 5 and 2 rounds; block 8 has no partner
    assert table.rows[0] == ("gsm8k", "**2.500**", "2.000", "5.000")


def test_accept_lengths_by_block_pair_mtp_with_dflash() -> None:
    figures = reckon(cards())
    table = accept_pairs(figures, Notes(cards(), figures))
    assert table.title == "Accept length by block, concurrency 1: MTP / DFlash"
    assert table.header == ("Task", "B4", "B8")
    assert table.rows == (("gsm8k", "2.50 / 2.00", "- / 5.00"), ("mbpp", "2.50 / 2.00", "- / 5.00"))


def test_arms_that_tell_no_rounds_have_no_row_of_accept_lengths() -> None:
    made = bench(cell(BASE, 1, 90.0), cell(WIDE4, 1, 80.0))
    titles = [table.title for table in all_tables(made, reckon(made))]
    assert not [title for title in titles if title.startswith("Accept length")]


def test_details_have_every_arm_at_every_place() -> None:
    figures = reckon(cards())
    table = details(figures, Notes(cards(), figures))
    assert len(table.rows) == 2 * 2 * 4
    row = dict(zip(table.header, table.rows[3], strict=True))
    assert row == {
        "Arm": "DFlash block=8 (dflash-gguf)",
        "Workload": "gsm8k",
        "Concurrency": "1",
        "Runs": "3",
        "tok/s": "300.0",
        "least-most": "150.0-300.0",
        "Speed-up least-most": "3.00-3.00",
        "Decode tok/s": "18.0 (client)",
        "First token ms": "500.0",
        "95 % ms": "500.0",
        "Prefill s": "-",
        "Decode s": "-",
        "Accepted": "50.0 %",
        "Peak MiB": "3",
    }


def test_acceptance_by_position() -> None:
    figures = reckon(cards())
    table = acceptance(figures, Notes(cards(), figures))
    assert table.header == ("Arm", "Workload", "Concurrency", "1", "2", "3")
    assert table.rows[0][3:] == ("100.0 %", "50.0 %", "0.0 %")
    assert len(table.rows) == 2 * 2 * 3  # the baseline drafts nothing


def test_shallower_arms_get_dashes() -> None:
    shallow = turn(0, drafted=1, accepted=1, drafted_at=(1,), accepted_at=(1,))
    deep = turn(0, drafted=2, accepted=1, drafted_at=(1, 1), accepted_at=(1, 0))
    made = bench(cell(WIDE4, 1, 1.0, shallow), cell(WIDE8, 1, 1.0, deep))
    rows = _table(made, "Acceptance").rows
    assert [row[3:] for row in rows] == [("100.0 %", "-"), ("100.0 %", "0.0 %")]


def test_shares_stand_in_the_order_of_a_round() -> None:
    figures = reckon(cards())
    table = shares(figures, Notes(cards(), figures))
    assert table.header == ("Arm", "Workload", "Concurrency", "draft", "verify")
    assert table.rows[0][3:] == ("25.0 %", "75.0 %")


def test_every_table_says_where_and_how_it_was_measured() -> None:
    made = cards()
    tables = all_tables(made, reckon(made))
    assert len(tables) == 9
    for table in tables:
        said = "\n".join(table.notes)
        for fact in (
            *("Some CPU", "2 cores", "8.0 GiB", "threads 2", "t.gguf", "Q8_0+F32", "d.gguf"),
            *("BF16", "0.1.0 (0123abc)", "0c1e57098", "2026-01-02", "max_tokens 64"),
            *("abababababababab", "llama-server (version b1, n-max 3)"),
        ):
            assert fact in said, (table.title, fact)
        assert all(len(row) == len(table.header) for row in table.rows)
        assert all("\n" not in note for note in table.notes)
    assert any("median of 3 runs" in note for note in tables[0].notes)


def test_simulated_stands_in_every_title_and_only_then() -> None:
    made = cards()
    drawn = replace(made, facts={**made.facts, "simulated": True})
    for table in all_tables(drawn, reckon(drawn)):
        assert "simulated" in table.title
        assert any(note.startswith("simulated:") for note in table.notes)
    for table in all_tables(made, reckon(made)):
        assert "simulated" not in table.title


def test_arms_of_one_block_stand_side_by_side() -> None:
    server = [
        ArmFacts("s", "ar", None, "llama-server", {"command": "llama-server --port {port}"}),
        ArmFacts("s 4", "dflash", 4, "llama-server"),
        ArmFacts("s 8", "dflash", 8, "llama-server"),
    ]
    arms = (WIDE8, WIDE4, AUTO, BASE, *server)
    made = bench(*(cell(arm, 1, 50.0) for arm in arms), arms=arms)
    table = _table(made, "Throughput")
    assert table.header[1:] == (
        *("Baseline (dflash-gguf)", "Baseline (llama-server)"),
        *("DFlash block=4 (dflash-gguf)", "DFlash block=4 (llama-server)"),
        *("DFlash block=8 (dflash-gguf)", "DFlash block=8 (llama-server)"),
        "DFlash block=auto (dflash-gguf)",
    )
    assert "Baseline (llama-server): llama-server --port {port}" in _table(made, "Every arm").notes
