#include "log.h"

#include "llama.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

namespace dflash {

namespace {

std::atomic<int> level{0};
constexpr size_t kept = 8;
// Each thread's own: several may load models at a time, and llama.cpp reports from the thread that called it.
thread_local std::deque<std::string> errors;
thread_local size_t graph_nodes = 0;

void on_log(ggml_log_level severity, const char * text, void * /*user_data*/) {
    if (severity == GGML_LOG_LEVEL_DEBUG) { // "sched_reserve: max_nodes = 1024"
        const char * found = std::strstr(text, "max_nodes = ");
        if (found != nullptr) {
            graph_nodes = std::strtoul(found + std::strlen("max_nodes = "), nullptr, 10);
        }
    }
    if (severity == GGML_LOG_LEVEL_ERROR) {
        std::string line(text);
        while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) {
            line.pop_back();
        }
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
    errors.clear();
}

std::string last_errors() {
    std::string joined;
    for (const std::string & line : errors) {
        joined += (joined.empty() ? "" : "; ") + line;
    }
    return joined;
}

size_t last_graph_nodes() {
    return graph_nodes;
}

} // namespace dflash
