// DSpark's graph chains the positions of a block: each one's logits get what the Markov head makes of the
// best token before it. Where a request samples, that is not the token that will stand there. So computing
// pauses at each link, and the sampled token takes the best one's place.
#pragma once

#include "decide.h"
#include "graph_watch.h"

#include <functional>
#include <string>
#include <vector>

namespace dflash {

class MarkovChain : public GraphWatch {
  public:
    // The token that follows by these logits [n_vocab] in the decode's block of this number; -1 leaves the
    // best one.
    using Choice = std::function<Token(size_t block, const float * logits)>;

    bool see(ggml_tensor * node) override;
    void computed(ggml_tensor * node) override;

    // Run a decode of so many blocks, whose links are chosen. Throws what `decode` throws, and
    // std::runtime_error unless the graph has just so many links.
    void along(size_t blocks, int links, Choice choose, const std::function<void()> & decode);

  private:
    void link(ggml_tensor * node);

    Choice choose_; // none: not in use
    size_t blocks_ = 0;
    int links_ = 0;
    std::string fault_; // the first one
    std::vector<float> logits_;
};

} // namespace dflash
