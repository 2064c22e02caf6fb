// tensors: the draws of what parameters, buffers and gradients are besides their sizes: the state
// that ranks broadcast, tables of rows, gradients that require a gradient, and gradients that the
// user replaces. Internal to generate/. Each draw has random numbers of its own, so that other
// choices stay what they are. Pure functions; any thread.
#pragma once

#include "properties/generate/generate.h"
#include "properties/generate/random.h"

namespace lockstep::properties {

// In some cases the last bucket has no elements (B6).
void draw_empty_bucket(Random random, const GenerateOptions& options, reference::Program& program);
// In some cases one use of a parameter sends one bad number, often in a large gradient (G9).
void draw_bad_number(Random random, const GenerateOptions& options, reference::Program& program);
// Draws the state options (S3).
void draw_state(Random random, const GenerateOptions& options, reference::Program& program);
// Turns some parameters into tables of rows (S1).
void draw_sparse(Random random, const GenerateOptions& options, reference::Program& program);
// Makes some gradients, mostly one, require a gradient (P16).
void draw_requires_grad(Random random, const GenerateOptions& options, reference::Program& program);
// Before some steps the user replaces gradients instead of leaving the existing ones (P10, B7).
void draw_set_gradients(Random random, const GenerateOptions& options, reference::Program& program);

}  // namespace lockstep::properties
