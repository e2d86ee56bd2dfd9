// What a pair would take in memory, in llama.cpp's own numbers, before anything of size is allocated.
#pragma once

#include "context.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dflash {

// Bytes of one kind of memory: "host", or a device's name.
struct BufferUse {
    std::string place;
    std::uint64_t weights = 0;
    std::uint64_t mapped = 0; // of the weights: pages of the file, which the system may drop and read again
    std::uint64_t caches = 0; // keys, values and recurrent state
    std::uint64_t compute = 0;
};

// What a context takes.
struct ContextUse {
    std::vector<BufferUse> buffers;
    std::int64_t books = 0;   // llama.cpp's own notes: cells, graphs, ids; -1 if the system does not tell
    std::uint64_t cells = 0;  // what these grow by until every position is in use
    std::uint64_t graphs = 0; // notes of its graphs with outputs and without, made by the first decodes
};

// Bytes this process holds that are no file's pages, after free memory went back to the system; -1 where the
// system does not tell.
std::int64_t own_memory();

// What llama.cpp has in its buffers for a context and its model.
std::vector<BufferUse> buffers_of(const Context & context);

// Loads headers and vocabularies only. Contexts are made in simulation and are gone before a call returns,
// for a decode on one would end the process. Recurrent states are the exception: llama.cpp allocates them
// even so.
class MemoryTrial {
  public:
    // Throws std::runtime_error with llama.cpp's words, std::invalid_argument for an unknown device.
    MemoryTrial(const std::string & target, const ModelParams & params);
    void open_draft(const std::string & draft, const ModelParams & params);

    const Model & model() const { return *target_; }
    int n_taps() const { return draft_ ? static_cast<int>(draft_->taps().size()) : 0; }

    // Own memory of the vocabularies and headers; -1 if the system does not tell.
    std::int64_t headers() const { return headers_; }

    // Recurrent state of one sequence, without snapshots; none for a model without.
    const std::vector<BufferUse> & state() const { return state_; }

    // Whether llama.cpp keeps snapshots of this target's state to go back to.
    bool keeps_snapshots() const;

    // Throw std::invalid_argument or std::runtime_error as Context does.
    ContextUse target(const ContextParams & params) const;
    ContextUse draft(const ContextParams & params) const;

  private:
    std::vector<BufferUse> measure_state() const;

    std::shared_ptr<Model> target_;
    std::shared_ptr<Model> draft_;
    std::int64_t headers_ = 0;
    std::vector<BufferUse> state_;
};

} // namespace dflash
