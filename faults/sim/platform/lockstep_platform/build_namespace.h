// The namespace of builds on the platform `sim`; reducer/base/build_namespace.h includes this file.
#pragma once

#define LOCKSTEP_NS sim
