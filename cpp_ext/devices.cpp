#include "devices.h"

#include "ggml-backend.h"

#include <utility>

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

bool is_remote(const std::string & backend) {
    // the second is a registered server, "RPC[host:port]"
    return backend == "RPC" || backend.rfind("RPC[", 0) == 0;
}

std::vector<Device> devices() {
    std::vector<Device> found;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t raw = ggml_backend_dev_get(i);
        Device device{ggml_backend_dev_name(raw),
                      ggml_backend_dev_description(raw),
                      ggml_backend_reg_name(ggml_backend_dev_backend_reg(raw)),
                      kind_name(ggml_backend_dev_type(raw)),
                      false,
                      0,
                      0};
        device.remote = is_remote(device.backend);
        // a server that is gone would end the process
        if (!device.remote) {
            ggml_backend_dev_memory(raw, &device.memory_free, &device.memory_total);
        }
        found.push_back(std::move(device));
    }
    return found;
}

} // namespace dflash
