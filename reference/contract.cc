#include "reference/contract.h"

namespace lockstep::reference {

Contract Contract::lockstep() { return Contract{}; }

}  // namespace lockstep::reference
