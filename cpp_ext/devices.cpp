#include "devices.h"

#include "ggml-backend.h"

namespace dflash {

namespace {

const char * kind_name(enum ggml_backend_dev_type type) {
    switch (type) {
    case GGML_BACKEND_DEVICE_TYPE_CPU:
        return "cpu";
    case GGML_BACKEND_DEVICE_TYPE_GPU:
        return "gpu";
    case GGML_BACKEND_DEVICE_TYPE_IGPU:
        return "igpu";
    default:
        return "accelerator";
    }
}

} // namespace

std::vector<Device> devices() {
    std::vector<Device> found;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        ggml_backend_dev_props props;
        ggml_backend_dev_get_props(device, &props);
        found.push_back({props.name, props.description,
                         ggml_backend_reg_name(ggml_backend_dev_backend_reg(device)), kind_name(props.type),
                         props.memory_free, props.memory_total});
    }
    return found;
}

} // namespace dflash
