// main() of tests that run the gloo lane. Ranks as processes are this program, started again (see
// process_ranks.h). They must serve, and not run the tests once more.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "properties/lane/process_ranks.h"

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "rank-server")
    return lockstep::properties::serve_ranks(std::atoi(argv[2]));
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
