#include "log.h"

#include "llama.h"

#include <atomic>
#include <cstdio>
#include <deque>
#include <mutex>

namespace dflash {

namespace {

std::atomic<int> level{0};
std::mutex guard;
std::deque<std::string> errors;
constexpr size_t kept = 8;

void on_log(ggml_log_level severity, const char * text, void * /*user_data*/) {
    if (severity == GGML_LOG_LEVEL_ERROR) {
        std::string line(text);
        while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) {
            line.pop_back();
        }
        const std::lock_guard<std::mutex> lock(guard);
        errors.push_back(std::move(line));
        if (errors.size() > kept) {
            errors.pop_front();
        }
    }
    const bool loud = severity == GGML_LOG_LEVEL_ERROR || severity == GGML_LOG_LEVEL_WARN;
    if (level >= 2 || (level == 1 && loud)) {
        std::fputs(text, stderr);
    }
}

} // namespace

void capture_log(int verbosity) {
    level = verbosity;
    llama_log_set(on_log, nullptr);
}

void clear_errors() {
    const std::lock_guard<std::mutex> lock(guard);
    errors.clear();
}

std::string last_errors() {
    const std::lock_guard<std::mutex> lock(guard);
    std::string joined;
    for (const std::string & line : errors) {
        joined += (joined.empty() ? "" : "; ") + line;
    }
    return joined;
}

} // namespace dflash
