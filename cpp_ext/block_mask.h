// Runs each layer of a drafter with the mask it was trained with.
//
// llama.cpp has one causal flag for a context; a drafter may mix layers that are causal inside the block with
// layers that are not. The context then runs without the flag, and before the attention of a causal layer
// is computed its mask loses the keys that stand after the query. Rows are known by their positions and
// cells, read from the graph itself, so the order of the batch does not matter.
#pragma once

#include "decide.h"
#include "graph_watch.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <string>
#include <vector>

namespace dflash {

class BlockMask : public GraphWatch {
  public:
    // causal: one flag per layer. shared: all layers read one mask tensor, so it is changed from layer to
    // layer; else layers that read the same tensor must agree.
    BlockMask(std::vector<bool> causal, bool shared) : causal_(std::move(causal)), shared_(shared) {}

    // Faults are kept for `end`.
    bool see(ggml_tensor * node) override;

    void begin(); // masks of the next decode are changed
    void end();   // throws std::runtime_error unless every causal layer's was

  private:
    bool store_of(const ggml_tensor * node);
    void attend(const ggml_tensor * mask);
    void hide(ggml_tensor * mask);
    void restore();
    void pass();

    struct Saved {
        size_t offset;
        std::vector<char> bytes;
    };

    std::vector<bool> causal_;
    bool shared_;
    bool active_ = false;
    int layer_ = -1;                            // whose keys were stored last
    int passes_ = 0;                            // graphs that llama.cpp has made of the decode
    int corrected_ = 0;                         // causal layers so far
    std::string fault_;                         // the first one
    const ggml_tensor * positions_ = nullptr;   // I32, of each row
    const ggml_tensor * cells_ = nullptr;       // I64, where the layer's keys went
    int64_t cells_of_stream_ = 0;               // cells of one sequence's part of the cache
    std::vector<const ggml_tensor *> hidden_;   // masks that are changed
    std::vector<const ggml_tensor *> unhidden_; // masks that layers read unchanged
    ggml_tensor * changed_ = nullptr;           // shared masks: the one to be restored
    std::vector<Saved> saved_;
};

} // namespace dflash
