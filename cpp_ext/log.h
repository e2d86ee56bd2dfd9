// llama.cpp's log: silent by default, its last errors kept for our own messages.
#pragma once

#include <cstddef>
#include <string>

namespace dflash {

// Take over llama.cpp's log. verbosity 0: nothing printed; 1: warnings and errors; 2: everything, to stderr.
void capture_log(int verbosity);

// Forget what has been kept; call before an operation whose failure is to be explained.
void clear_errors();

// The error lines logged since clear_errors(), joined by "; ", without trailing newlines.
std::string last_errors();

// The most nodes that a graph of the context made last may have, as llama.cpp logs it; 0: it did not.
size_t last_graph_nodes();

} // namespace dflash
