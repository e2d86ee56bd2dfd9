// Time spent in a scope.
#pragma once

#include <chrono>
#include <cstdint>

namespace dflash {

inline std::int64_t now_ns() {
    using namespace std::chrono;
    return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

// Adds the time from here to the end of the scope.
class Stopwatch {
  public:
    explicit Stopwatch(std::int64_t & sum) : sum_(sum), start_(now_ns()) {}
    ~Stopwatch() { sum_ += now_ns() - start_; }
    Stopwatch(const Stopwatch &) = delete;
    Stopwatch & operator=(const Stopwatch &) = delete;

  private:
    std::int64_t & sum_;
    std::int64_t start_;
};

} // namespace dflash
