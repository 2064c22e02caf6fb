// Debian's package of Gloo leaves out this header, which its headers of the TCP transport include.
// They use it for pointers to buffers that their owners may destroy meanwhile. This file stands in
// for it where the package has none: the types have the size and the parts of Gloo's, so that
// classes which contain them, and are compiled in Gloo's library, have the same layout here. What
// Gloo does with them is not here, because only its library does it.
// GuardedTransport.PairsHaveTheSizeThatGloosLibraryGivesThem notices a library that differs.
#pragma once

#include <memory>

namespace gloo {

template <typename T>
class NonOwningPtr {
 private:
  std::shared_ptr<T> held_;
};

template <typename T>
class WeakNonOwningPtr {
 private:
  std::weak_ptr<T> held_;
};

template <typename T>
class ShareableNonOwningPtr;

}  // namespace gloo
