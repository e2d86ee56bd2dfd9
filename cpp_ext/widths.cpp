#include "widths.h"

namespace dflash {

std::vector<int> draft_widths(int widest) {
    std::vector<int> widths{1};
    for (const int width : {widest / 4, widest / 2, 5 * widest / 8, 3 * widest / 4, widest}) {
        if (width > widths.back()) {
            widths.push_back(width);
        }
    }
    return widths;
}

std::vector<int> verify_widths(int drafted) {
    std::vector<int> widths;
    for (int width = 1; width < drafted; width += width < 6 ? 1 : width < 16 ? 2 : 8) {
        widths.push_back(width);
    }
    widths.push_back(drafted);
    return widths;
}

} // namespace dflash
