#include "reference/contract.h"

namespace lockstep::reference {

Contract Contract::lockstep() { return Contract{}; }

Contract Contract::torch() {
  Contract contract;
  contract.alignment_bytes = 0;
  contract.is_hook_by_hook = true;
  for (const Policy& policy : kPolicies) contract.*policy.member = true;
  return contract;
}

}  // namespace lockstep::reference
