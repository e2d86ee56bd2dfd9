// What the stages of a round cost, by sequences and width. Pure: it is told times, it takes none.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace dflash {

// A measured round: nanoseconds of each stage for `sequences` blocks of `width` rows.
struct CostPoint {
    int sequences = 1;
    int width = 1; // 1: no draft
    double draft = 0;
    double verify = 0;
    double inject = 0; // of `injected` rows
    int injected = 1;
};

// What one more snapshot costs every verify of so many blocks of so many rows, in nanoseconds.
struct SlotCost {
    int sequences = 1;
    int width = 1;
    double ns = 0;
};

struct Calibration {
    std::vector<CostPoint> points; // at least sequences 1, width 1; taken with `depth` snapshots
    int depth = 0;
    std::vector<SlotCost> slots;
    double rebuild = 0; // of a verify whose shape is not the last one's
    double shift = 0;   // of remaking the target's context with another depth
    bool rough = false; // measured while other programs took the cores
};

// Interpolates a calibration and follows what rounds really take. One drift for all stages tells how fast the
// machine is now; one slow correction for every stage, octave of sequences and width tells where the
// calibration is off. Corrections learn from neighbouring times of different shapes only: what those disagree
// about is not the machine's, whose speed may double in a moment, but the shapes'.
class CostTable {
  public:
    // Throws std::invalid_argument if the calibration lacks its first point or holds a number that is no
    // time.
    CostTable(Calibration calibration, int widest);
    CostTable(CostTable &&) = default;
    CostTable & operator=(CostTable &&) = default;
    CostTable(const CostTable &) = delete; // `last_` is among its own
    CostTable & operator=(const CostTable &) = delete;

    double verify(int sequences, int width, int depth) const;
    double draft(int sequences, int width) const;
    double inject(int rows) const;
    double rebuild() const { return calibration_.rebuild * drift_; }
    double shift() const { return calibration_.shift * drift_; }
    bool rough() const { return calibration_.rough; }

    void saw_verify(int sequences, int width, int depth, double ns);
    void saw_draft(int sequences, int width, double ns);
    void saw_shift(double ns);

  private:
    // Of some number of sequences, by width.
    struct Row {
        std::vector<double> verify;
        std::vector<double> draft;
        std::vector<double> slot;
    };
    struct Correction {
        double factor = 1;
        int seen = 0;
    };
    // Of numbers of sequences that are alike, by width.
    struct Corrections {
        std::vector<Correction> verify;
        std::vector<Correction> draft;
        std::optional<double> of_row; // log of the last time of one row by what was expected, at a drift of 1
    };

    const Row & row(int sequences) const;
    Corrections & corrections(int sequences) const;
    double model(bool verify, int sequences, int width) const;
    double slot(int sequences, int width) const;
    // ns: nanoseconds it took; expected: by all that is known.
    void saw(Corrections & of, Correction & correction, int sequences, double ns, double expected);

    Calibration calibration_;
    int widest_ = 1;
    std::vector<int> grid_;           // numbers of sequences that were measured
    mutable std::map<int, Row> rows_; // filled as they are asked for
    mutable std::map<int, Corrections> corrections_;
    std::vector<std::pair<double, double>> inject_;
    double drift_ = 1;
    Correction * last_ = nullptr; // of the last time seen; a map's nodes stay where they are
    double last_error_ = 0;       // log of that time by what was expected, both at a drift of 1
};

} // namespace dflash
