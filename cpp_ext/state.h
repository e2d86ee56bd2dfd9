// A sequence's state as bytes, and how far its context can take it back.
#pragma once

#include "context.h"

#include <cstdint>
#include <vector>

namespace dflash {

using Bytes = std::vector<std::uint8_t>;

// What of a state to write: all of it, or only what moves on with the sequence (recurrent states, sliding
// windows), which cutting positions off cannot bring back.
enum class Part { all, moving };

// Whether anything of this context's states moves on, so that going back needs bytes saved before.
bool moves_on(const Context & context);

// Positions of a sequence that the context holds: 0 to held - 1.
int held(const Context & context, llama_seq_id seq);

// The least number of positions that cutting the rest off gives back as they were; held() if none is less.
int least_cut(const Context & context, llama_seq_id seq);

// Into `to`, which keeps its memory for the next. Throws std::runtime_error with llama.cpp's words.
void save_state(const Context & context, llama_seq_id seq, Part part, Bytes & to);
Bytes save_state(const Context & context, llama_seq_id seq, Part part);

// Bytes of a context of the same model and parameters. False if llama.cpp refuses them; the sequence is then
// to be dropped.
bool load_state(Context & context, llama_seq_id seq, const Bytes & bytes, Part part);

// Forget positions >= count, of which least_cut() allows all or which a loaded moving part stands at. False
// if the sequence does not hold exactly `count` positions afterwards.
bool cut_back(Context & context, llama_seq_id seq, int count);

} // namespace dflash
