// How many threads a context should compute with while other programs want the cores too. Pure: it is told
// times.
//
// Threads meet at a barrier behind every operation. If one of them has lost its core, all others wait until
// it is let on again, so that a decode takes many times its time; fewer threads, each with a core, are much
// faster.
#pragma once

namespace dflash {

// Of a decode by `threads` threads: seconds that passed, seconds of computing that the process got meanwhile,
// and how often one of its threads was taken off its core.
struct DecodeFacts {
    int threads;
    double wall;
    double cpu;
    long preempted;
};

class ThreadGovernor {
  public:
    // most: threads where nobody else wants the cores.
    explicit ThreadGovernor(int most) : most_(most), threads_(most) {}

    int threads() const { return threads_; }
    // now: seconds of any steady clock.
    void saw(const DecodeFacts & facts, double now);

  private:
    int most_;
    int threads_;
    double wall_ = 0; // of the decodes since it last judged, as are these
    double cpu_ = 0;
    double due_ = 0; // what they would have got of cores of their own
    long preempted_ = 0;
    double pause_ = 0; // before all threads are tried again
    double retry_at_ = 0;
};

} // namespace dflash
