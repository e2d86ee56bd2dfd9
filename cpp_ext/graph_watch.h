// What sees the nodes of a context's graphs while llama.cpp computes them, and may change what they read.
#pragma once

#include <ggml.h>

namespace dflash {

// Called from C: nothing may throw.
class GraphWatch {
  public:
    virtual ~GraphWatch() = default;

    // Before a node is computed. True: computing pauses behind it, and `computed` is called.
    virtual bool see(ggml_tensor * node) = 0;
    virtual void computed(ggml_tensor * /*node*/) {}
};

} // namespace dflash
