#include "model_drafter.h"

#include "llama_ext.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>

namespace dflash {

namespace {

bool mixed(const std::vector<bool> & causal) {
    return std::adjacent_find(causal.begin(), causal.end(), std::not_equal_to<bool>()) != causal.end();
}

std::shared_ptr<BlockMask> block_mask(const Model & model, const std::vector<bool> & causal) {
    // without a window all layers read one mask
    const bool shared = llama_model_n_swa(model.get()) == 0;
    return mixed(causal) ? std::make_shared<BlockMask>(causal, shared) : nullptr;
}

std::vector<std::shared_ptr<GraphWatch>> those_of(std::shared_ptr<GraphWatch> a,
                                                  std::shared_ptr<GraphWatch> b) {
    std::vector<std::shared_ptr<GraphWatch>> watches;
    for (std::shared_ptr<GraphWatch> * watch : {&a, &b}) {
        if (*watch) {
            watches.push_back(std::move(*watch));
        }
    }
    return watches;
}

} // namespace

ModelDrafter::ModelDrafter(std::shared_ptr<Model> model, const ContextParams & params,
                           std::shared_ptr<Context> target, Token mask, const std::vector<bool> & causal)
    : ModelDrafter(std::move(model), params, std::move(target), mask, causal, nullptr) {
    if (llama_model_dflash_selector_top_k(context_->model().get()) > 0) {
        throw std::invalid_argument("the drafter has a selector; expected one of the DFlash family");
    }
}

ModelDrafter::ModelDrafter(std::shared_ptr<Model> model, const ContextParams & params,
                           std::shared_ptr<Context> target, Token mask, const std::vector<bool> & causal,
                           std::shared_ptr<GraphWatch> watch)
    : block_mask_(block_mask(*model, causal)),
      context_(std::make_shared<Context>(model, params, std::move(target),
                                         those_of(block_mask_, std::move(watch)))),
      mask_(mask), trained_block_(std::atoi(model->meta("dflash.block_size").value_or("0").c_str())),
      features_(static_cast<int>(model->taps().size()) * model->n_embd(), model->uses_mrope()) {
    if (params.n_batch != params.n_ubatch || params.n_outputs != params.n_batch) {
        throw std::invalid_argument("a draft context needs n_batch = n_ubatch = n_outputs, found " +
                                    std::to_string(params.n_batch) + ", " + std::to_string(params.n_ubatch) +
                                    " and " + std::to_string(params.n_outputs));
    }
    if (context_->model().taps().empty()) {
        throw std::invalid_argument("architecture '" + context_->model().arch() +
                                    "' is not a drafter; expected 'dflash'");
    }
    if (mask_ < 0 || mask_ >= context_->model().n_vocab()) {
        throw std::invalid_argument("mask token " + std::to_string(mask_) + " is outside the vocabulary of " +
                                    std::to_string(context_->model().n_vocab()));
    }
    if (static_cast<int>(causal.size()) != context_->model().n_layer()) {
        throw std::invalid_argument("masks of " + std::to_string(causal.size()) +
                                    " layers, the drafter has " +
                                    std::to_string(context_->model().n_layer()));
    }
    llama_set_causal_attn(context_->get(), !mixed(causal) && causal[0]);
}

void ModelDrafter::inject(const Target & target, const std::vector<FeatureRows> & rows) {
    if (target.n_features() != features_.width()) {
        throw std::logic_error("the target gives " + std::to_string(target.n_features()) +
                               " features of a row, the drafter takes " + std::to_string(features_.width()));
    }
    features_.clear();
    for (const FeatureRows & run : rows) { // before anything comes in: the cache has room for no more
        context_->forget(run.seq, window() > 0 ? run.pos + run.count - window() : 0);
    }
    for (const FeatureRows & given : rows) {
        const FeatureRows run = newest(given, given.pos + given.count, window());
        for (int i = 0; i < run.count; ++i) {
            target.copy_features(run.row + i, features_.add(run.pos + i, run.seq));
            // attention is not causal here: a decode must fit one ubatch
            if (features_.size() == context_->params().n_ubatch) {
                flush();
            }
        }
    }
    flush();
}

void ModelDrafter::inject_kept(const std::vector<Kept> & kept) {
    features_.clear();
    for (const Kept & of_one : kept) {
        context_->forget(of_one.seq, window() > 0 ? of_one.ring->end() - window() : 0);
    }
    for (const Kept & of_one : kept) {
        for (int i = 0; i < of_one.ring->count(); ++i) {
            float * row = features_.add(of_one.ring->begin() + i, of_one.seq);
            std::memcpy(row, of_one.ring->row(i), static_cast<size_t>(features_.width()) * sizeof(float));
            if (features_.size() == context_->params().n_ubatch) {
                flush();
            }
        }
    }
    flush();
}

void ModelDrafter::flush() {
    if (features_.size() > 0) {
        context_->decode(features_.view(), "injecting features into the draft");
        features_.clear();
    }
}

void ModelDrafter::decode_noise() {
    if (block_mask_) {
        block_mask_->begin();
    }
    context_->decode(noise_.view(), "drafting");
    if (block_mask_) {
        block_mask_->end();
    }
}

// A row of a block must come out otherwise when the layers' masks are corrected.
void ModelDrafter::probe() {
    if (!block_mask_) {
        return;
    }
    int rows = std::min(context_->params().n_batch, 8);
    if (equal_length()) {
        rows = std::min(rows, trained_block_);
    }
    const size_t count = static_cast<size_t>(rows) * context_->model().n_vocab();
    noise_.clear();
    for (int pos = 0; pos < rows; ++pos) {
        // rows of one token have one value, and what attention makes of equal values no mask can change
        noise_.add(pos % context_->model().n_vocab(), pos, 0, true);
    }
    context_->decode(noise_.view(), "drafting");
    const std::vector<float> plain(context_->logits(0), context_->logits(0) + count);
    context_->drop(0);
    decode_noise();
    context_->drop(0);
    if (rows > 1 && std::equal(plain.begin(), plain.end(), context_->logits(0))) {
        throw std::runtime_error(
            "the masks of a drafter that mixes causal and bidirectional layers took no effect");
    }
}

void ModelDrafter::draft(std::vector<DraftRequest> & requests) {
    const std::vector<BlockGroup> decodes = groups(requests);
    lone_ = decodes.size() == 1;
    for (const BlockGroup & group : decodes) {
        draft_together(requests, group, true);
    }
}

void ModelDrafter::rehearse(std::vector<DraftRequest> & requests) {
    for (const BlockGroup & group : groups(requests)) {
        draft_together(requests, group, false);
        llama_synchronize(context_->get());
    }
}

// A split cache's decode is cut where the sequences' rows differ in number, and a block must not be.
bool ModelDrafter::same_width() const {
    return equal_length() || (context_->params().n_seq > 1 && !context_->params().unified);
}

std::vector<BlockGroup> ModelDrafter::groups(const std::vector<DraftRequest> & requests) const {
    std::vector<int> counts;
    std::vector<int> rooms;
    BlockGroup all{0, {}};
    for (const DraftRequest & request : requests) {
        counts.push_back(request.count);
        // a draft may end at the context's edge: what is drafted is not in any cache afterwards
        rooms.push_back(std::max(request.count, context_->params().n_ctx - request.pos - 1));
        all.members.push_back(all.members.size());
    }
    if (!same_width()) {
        return {all};
    }
    std::vector<BlockGroup> equals = equal_blocks(counts, rooms);
    for (const BlockGroup & group : equals) {
        // beyond it llama.cpp's graphs leave out what they should compute, without a word
        if (equal_length() && block_rows(group.count) > trained_block_) {
            throw std::logic_error("a block of " + std::to_string(block_rows(group.count)) +
                                   " rows, the drafter was trained for " + std::to_string(trained_block_));
        }
    }
    return equals;
}

void ModelDrafter::draft_together(std::vector<DraftRequest> & requests, const BlockGroup & group,
                                  bool reads) {
    const auto rows_of = [&](const DraftRequest & request) {
        return block_rows(same_width() ? group.count : request.count);
    };
    noise_.clear();
    for (const size_t member : group.members) {
        const DraftRequest & request = requests[member];
        for (int i = 0; i < rows_of(request); ++i) {
            // If any, every row asks for logits: llama.cpp copies the first rows of the batch, whichever
            // were flagged.
            noise_.add(i == 0 ? request.anchor : mask_, request.pos + i, request.seq, needs_logits());
        }
    }
    decode_blocks(requests, group);
    int row = 0;
    for (const size_t member : group.members) {
        DraftRequest & request = requests[member];
        if (reads) {
            read(request, row);
        }
        row += rows_of(request);
        context_->truncate(request.seq, request.pos); // the noise leaves the cache
    }
}

void ModelDrafter::read(DraftRequest & request, int row) {
    read_logits(request, row + 1);
}

void ModelDrafter::read_logits(DraftRequest & request, int first_row) {
    const auto next = [&] { return first_row + static_cast<int>(request.drafted.size()); };
    while (static_cast<int>(request.drafted.size()) < request.count &&
           extend(request, context_->logits(next()), lone_)) {
    }
}

bool ModelDrafter::extend(DraftRequest & request, const float * logits, bool lasting) const {
    const std::vector<Token> & before = request.drafted;
    const int n_before = static_cast<int>(before.size());
    const Row row{logits, context_->model().n_vocab(), request.pos + 1 + n_before, before.data(), n_before};
    const Token token =
        request.sampler ? request.sampler->draft(row, lasting, request.q) : argmax(row.logits, row.n);
    if (token < 0) {
        return false; // not a number: nothing after it can be trusted either
    }
    request.drafted.push_back(token);
    if (request.rated) {
        request.confidence.push_back(confidence_in(logits, row.n, token));
    }
    return true;
}

const float * ModelDrafter::extra_row(int row) const {
    const float * rows = llama_get_embeddings_nextn(context_->get());
    if (!rows) {
        throw std::runtime_error("llama.cpp's graph of the drafter put out nothing but logits");
    }
    return rows + static_cast<size_t>(row) * context_->model().n_embd();
}

const float * ModelDrafter::block_logits(int row) const {
    if (!needs_logits()) {
        throw std::logic_error("this drafter's blocks are not read by their logits");
    }
    return context_->logits(row);
}

} // namespace dflash
