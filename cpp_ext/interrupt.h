// A request's wish to end at once, made from any thread, and how it reaches into the middle of a decode.
#pragma once

#include <atomic>
#include <cstdint>
#include <stdexcept>

namespace dflash {

// A decode was given up: what it was to add to the caches is lost, and with it recurrent state.
class Interrupted : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

class Interrupt {
  public:
    // From any thread. Lasts: a request that is to end does not go on.
    void set();
    bool is_set() const { return since_.load(std::memory_order_acquire) != 0; }

    // Whether to give up a decode in progress; asked by its thread between two nodes of the graph. Not before
    // `patience` has gone by, in which most decodes end by themselves and lose nothing.
    bool due();

    // For tests: set, and due at once, when so many more nodes of interruptible decodes have been computed.
    void set_after(int nodes) { countdown_ = nodes; }

    static constexpr std::int64_t patience =
        500'000'000; // ns: prefill pieces are made to take as long at most

  private:
    std::atomic<std::int64_t> since_{0}; // steady clock; 0: not set
    std::atomic<int> countdown_{0};
};

} // namespace dflash
