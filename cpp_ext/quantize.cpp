#include "quantize.h"

#include "ggml.h"
#include "llama_ext.h"
#include "rows.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace dflash {

namespace {

constexpr uint32_t max_layers = 512; // llama.cpp's LLAMA_MAX_LAYERS; more is an assertion there
constexpr int64_t max_dim = int64_t(1) << 31;
constexpr size_t max_tensors = 1 << 16;

using Shape = std::vector<int64_t>;
using NamedShapes = std::vector<std::pair<std::string, Shape>>;

std::string describe(const std::string & name, const Shape & shape) {
    std::string text = "tensor '" + name + "' of shape (";
    for (size_t i = 0; i < shape.size(); ++i) {
        text += (i ? ", " : "") + std::to_string(shape[i]);
    }
    return text + ")";
}

ggml_type checked_type(int type) {
    if (type < 0 || type >= GGML_TYPE_COUNT || ggml_blck_size(static_cast<ggml_type>(type)) <= 0) {
        throw std::invalid_argument("unknown ggml type " + std::to_string(type));
    }
    return static_cast<ggml_type>(type);
}

struct ModelDeleter {
    void operator()(llama_model * model) const { llama_model_free(model); }
};
struct StateDeleter {
    void operator()(quantize_state_impl * state) const { llama_quant_free(state); }
};
struct ContextDeleter {
    void operator()(ggml_context * context) const { ggml_free(context); }
};

void check_shapes(const NamedShapes & tensors) {
    if (tensors.size() > max_tensors) {
        throw std::invalid_argument("too many tensors: " + std::to_string(tensors.size()));
    }
    for (const auto & [name, shape] : tensors) {
        if (name.empty() || name.size() >= GGML_MAX_NAME) {
            throw std::invalid_argument(describe(name, shape) + ": the name must have 1 to " +
                                        std::to_string(GGML_MAX_NAME - 1) + " bytes");
        }
        const bool fits =
            std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n > 0 && n < max_dim; });
        if (shape.empty() || shape.size() > 3 || !fits) {
            throw std::invalid_argument(describe(name, shape) +
                                        ": expected 1 to 3 dimensions from 1 to 2^31-1");
        }
    }
}

// A file type without a default tensor type is an assertion in llama.cpp.
bool quantises(int ftype) {
    switch (ftype) {
    case LLAMA_FTYPE_MOSTLY_Q4_0:
    case LLAMA_FTYPE_MOSTLY_Q4_1:
    case LLAMA_FTYPE_MOSTLY_Q5_0:
    case LLAMA_FTYPE_MOSTLY_Q5_1:
    case LLAMA_FTYPE_MOSTLY_Q8_0:
    case LLAMA_FTYPE_MOSTLY_Q2_K:
    case LLAMA_FTYPE_MOSTLY_Q3_K_S:
    case LLAMA_FTYPE_MOSTLY_Q3_K_M:
    case LLAMA_FTYPE_MOSTLY_Q3_K_L:
    case LLAMA_FTYPE_MOSTLY_Q4_K_S:
    case LLAMA_FTYPE_MOSTLY_Q4_K_M:
    case LLAMA_FTYPE_MOSTLY_Q5_K_S:
    case LLAMA_FTYPE_MOSTLY_Q5_K_M:
    case LLAMA_FTYPE_MOSTLY_Q6_K:
        return true;
    default:
        return false;
    }
}

// llama.cpp takes the types a person wishes for as regular expressions; ours are whole names.
class Overrides {
  public:
    explicit Overrides(const std::map<std::string, int> & wishes) {
        for (const auto & [name, type] : wishes) {
            std::string pattern = "^";
            for (const char c : name) {
                if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') {
                    pattern += '\\';
                }
                pattern += c;
            }
            patterns_.push_back(pattern + "$");
            types_.push_back(checked_type(type));
        }
        for (size_t i = 0; i < patterns_.size(); ++i) {
            list_.push_back({patterns_[i].c_str(), types_[i]});
        }
        list_.push_back({nullptr, GGML_TYPE_COUNT});
    }

    const llama_model_tensor_override * data() const { return list_.data(); }

  private:
    std::vector<std::string> patterns_;
    std::vector<ggml_type> types_;
    std::vector<llama_model_tensor_override> list_;
};

// Types that llama.cpp gives each tensor of a file type, in the order of `tensors`, which the caller has
// sorted as llama.cpp does (block number, then name): the mix depends on that order.
std::vector<int> quantized_types(const std::string & architecture, int ftype, uint32_t n_embd, uint32_t n_ff,
                                 uint32_t n_layer, uint32_t n_head, uint32_t n_head_kv, uint32_t head_dim,
                                 const NamedShapes & tensors, const std::map<std::string, int> & wishes) {
    if (n_layer == 0 || n_layer > max_layers) {
        throw std::invalid_argument("n_layer must be 1 to 512, not " + std::to_string(n_layer));
    }
    if (!quantises(ftype)) {
        throw std::invalid_argument("file type " + std::to_string(ftype) + " is not one we quantise to");
    }
    check_shapes(tensors);

    const llama_quant_model_desc description = {
        architecture.c_str(), n_embd, n_ff, n_layer, n_head, n_head_kv, 0, head_dim, head_dim};
    const std::unique_ptr<llama_model, ModelDeleter> model(llama_quant_model_from_metadata(&description));
    if (!model) {
        throw std::runtime_error("llama.cpp does not know the architecture '" + architecture + "'");
    }

    // the state keeps a pointer to these, so they must outlive it
    const Overrides overrides(wishes);
    llama_model_quantize_params params = llama_model_quantize_default_params();
    params.ftype = static_cast<llama_ftype>(ftype);
    params.tt_overrides = overrides.data();
    const std::unique_ptr<quantize_state_impl, StateDeleter> state(llama_quant_init(model.get(), &params));

    const ggml_init_params memory = {ggml_tensor_overhead() * (tensors.size() + 1), nullptr, true};
    const std::unique_ptr<ggml_context, ContextDeleter> context(ggml_init(memory));
    if (!context) {
        throw std::bad_alloc();
    }

    std::vector<int> types(tensors.size(), GGML_TYPE_F32);
    std::vector<ggml_tensor *> chosen;
    std::vector<size_t> position;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const auto & [name, shape] = tensors[i];
        ggml_tensor * tensor =
            ggml_new_tensor(context.get(), GGML_TYPE_F32, static_cast<int>(shape.size()), shape.data());
        ggml_set_name(tensor, name.c_str());
        if (llama_quant_tensor_allows_quantization(state.get(), tensor)) {
            chosen.push_back(tensor);
            position.push_back(i);
        }
    }

    std::vector<ggml_type> result(chosen.size(), GGML_TYPE_F32);
    llama_quant_compute_types(state.get(), params.ftype, chosen.data(), result.data(), chosen.size());
    for (size_t i = 0; i < chosen.size(); ++i) {
        types[position[i]] = result[i];
    }
    return types;
}

py::buffer_info contiguous(const py::buffer & buffer, const char * which, bool writable) {
    py::buffer_info info = buffer.request(writable);
    py::ssize_t expected = info.itemsize;
    for (py::ssize_t i = info.ndim; i-- > 0;) {
        if (info.shape[i] != 1 && info.strides[i] != expected) {
            throw std::invalid_argument(std::string("the ") + which + " buffer must be contiguous");
        }
        expected *= info.shape[i];
    }
    return info;
}

void check_size(const py::buffer_info & info, const char * which, size_t needed) {
    const size_t found = static_cast<size_t>(info.size) * static_cast<size_t>(info.itemsize);
    if (found != needed) {
        throw std::invalid_argument(std::string("the ") + which + " buffer must have " +
                                    std::to_string(needed) + " bytes, it has " + std::to_string(found));
    }
}

bool is_plain(ggml_type type) {
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

RowJob checked_job(int source_type, int target_type, int64_t rows, int64_t columns, bool weighed) {
    const ggml_type from = checked_type(source_type);
    const ggml_type to = checked_type(target_type);
    if (!is_plain(from) && (!ggml_is_quantized(from) || !ggml_get_type_traits(from)->to_float)) {
        throw std::invalid_argument(std::string("rows must be floats or quantised, not ") +
                                    ggml_type_name(from));
    }
    if (!is_plain(to) && (!ggml_is_quantized(to) || to == GGML_TYPE_Q8_1 || to == GGML_TYPE_Q8_K ||
                          (!weighed && ggml_quantize_requires_imatrix(to)))) {
        throw std::invalid_argument(std::string("cannot make rows of type ") + ggml_type_name(to));
    }
    if (rows < 0 || rows >= max_dim || columns <= 0 || columns >= max_dim) {
        throw std::invalid_argument("rows and columns must be below 2^31 and columns above 0");
    }
    for (const ggml_type type : {from, to}) {
        if (columns % ggml_blck_size(type) != 0) {
            throw std::invalid_argument(std::string(ggml_type_name(type)) + " needs rows divisible by " +
                                        std::to_string(ggml_blck_size(type)) + ", not " +
                                        std::to_string(columns));
        }
    }
    return {nullptr, nullptr, from, to, rows, columns};
}

// Convert `rows` x `columns` values; returns how many overflowed in f16. See bind_quantize for the contract.
int64_t convert_buffers(const py::buffer & source, int source_type, const py::buffer & target,
                        int target_type, int64_t rows, int64_t columns, int threads,
                        const std::optional<py::buffer> & importance) {
    RowJob job = checked_job(source_type, target_type, rows, columns, importance.has_value());
    const py::buffer_info from = contiguous(source, "source", false);
    const py::buffer_info to = contiguous(target, "target", true);
    check_size(from, "source", static_cast<size_t>(rows) * ggml_row_size(job.source_type, columns));
    check_size(to, "target", static_cast<size_t>(rows) * ggml_row_size(job.target_type, columns));
    std::optional<py::buffer_info> weights;
    if (importance) {
        weights = contiguous(*importance, "importance", false);
        check_size(*weights, "importance", static_cast<size_t>(columns) * sizeof(float));
        job.importance = static_cast<const float *>(weights->ptr);
    }
    if (rows == 0) {
        return 0;
    }
    job.source = static_cast<const char *>(from.ptr);
    job.target = static_cast<char *>(to.ptr);

    RowResult result;
    {
        const py::gil_scoped_release release;
        result = convert_rows(job, std::clamp(threads, 1, 256));
    }
    if (result.not_finite >= 0) {
        throw py::value_error("near row " + std::to_string(result.not_finite) +
                              " a value is infinite or not a number");
    }
    if (result.bad_row >= 0) {
        throw py::value_error("near row " + std::to_string(result.bad_row) + " a value is too large for " +
                              ggml_type_name(job.target_type));
    }
    return result.overflows;
}

} // namespace

void bind_quantize(py::module_ & module) {
    module.def(
        "quantized_types", &quantized_types, py::arg("architecture"), py::arg("ftype"), py::kw_only(),
        py::arg("n_embd"), py::arg("n_ff"), py::arg("n_layer"), py::arg("n_head"), py::arg("n_head_kv"),
        py::arg("head_dim"), py::arg("tensors"), py::arg("wishes") = std::map<std::string, int>(),
        "The ggml type llama.cpp gives each tensor of a file of type `ftype` (a llama_ftype).\n\n"
        "`tensors` lists (name, [ne0, ne1, ...]) sorted by block number, then name: the mix depends on "
        "the order.\n`wishes` names types that tensors are to get instead of the mix's. Tensors that "
        "llama.cpp "
        "does not quantise come\nback as F32. Raises ValueError for a name or shape out of range, "
        "RuntimeError "
        "for an unknown architecture and for a\nwish that neither fits a tensor's rows nor has a fall-back.");
    module.def(
        "convert_rows", &convert_buffers, py::arg("source"), py::arg("source_type"), py::arg("target"),
        py::arg("target_type"), py::arg("rows"), py::arg("columns"), py::arg("threads") = 1,
        py::arg("importance") = py::none(),
        "Convert `rows` x `columns` values from one ggml type to another, into `target`.\n\n"
        "`importance`, f32, weighs the columns (an imatrix). "
        "Both buffers must have exactly the size their type needs. Works without the GIL on `threads` "
        "threads;\nthe bytes do not depend on their number. Returns how many values became infinite "
        "(f16 only).\nRaises ValueError for wrong types or sizes, and for values that are not finite or "
        "too large for a\nquantised type.");
}

} // namespace dflash
