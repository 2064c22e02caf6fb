#include "benchmarks/nccl_versions/header_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::benchmarks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> fields_of(const HeaderLayout& layout, std::size_t which) {
  std::vector<std::string> names;
  for (const HeaderField& field : layout.structures.at(which).fields) names.push_back(field.name);
  return names;
}

TEST(HeaderLayout, FindsStructuresByTheirTypeAndTheirFieldsInOrder) {
  const HeaderLayout found = find_declarations(
      "typedef struct ncclConfig_v1 {\n  size_t size; /* int a; */\n  const char *name; // int b;\n"
      "  char bytes[N + 1];\n} ncclConfig_t;\ntypedef struct {int one;} ncclOther_t;");
  ASSERT_EQ(found.structures.size(), 2U);
  EXPECT_EQ(found.structures[0].name, "ncclConfig_t");
  EXPECT_THAT(fields_of(found, 0), ElementsAre("size", "name", "bytes"));
  EXPECT_EQ(found.structures[1].name, "ncclOther_t");
  EXPECT_THAT(fields_of(found, 1), ElementsAre("one"));
}

TEST(HeaderLayout, AStructureInsideAnotherIsOneField) {
  const HeaderLayout found =
      find_declarations("typedef struct A {\n struct { int x; int y; } key;\n int last;\n} A_t;");
  ASSERT_EQ(found.structures.size(), 1U);
  EXPECT_THAT(fields_of(found, 0), ElementsAre("key", "last"));
}

TEST(HeaderLayout, FunctionsOfThePreprocessorAndOfCommentsAreNotDeclared) {
  const HeaderLayout found = find_declarations(
      "#define ncclMacro(x) \\\n  ncclBehind(x)\n/* ncclComment() */\n// ncclLine()\n"
      "ncclResult_t ncclSend(int a);\nncclResult_t pncclSend(int a);");
  EXPECT_THAT(found.functions, ElementsAre("ncclSend"));
  EXPECT_THAT(find_declarations("").structures, IsEmpty());
}

TEST(HeaderLayout, WhatTheProgramPrintsIsReadBack) {
  HeaderLayout layout = find_declarations("typedef struct A { int x; } ncclConfig_t;");
  EXPECT_THAT(layout_program(layout), HasSubstr("offsetof(ncclConfig_t, x)"));
  ASSERT_TRUE(
      read_layout("version 21803\nstructure ncclConfig_t 4\nfield x 0 4\ninitial x -2147483648\n",
                  layout)
          .ok());
  EXPECT_EQ(layout.version, 21803);
  EXPECT_EQ(layout.structures[0].size, 4U);
  EXPECT_EQ(layout.structures[0].fields[0].size, 4U);
  EXPECT_EQ(layout.structures[0].fields[0].initial, -2147483648);
}

TEST(HeaderLayout, OutputThatIsTornIsAnError) {
  HeaderLayout layout = find_declarations("typedef struct A { int x; } A_t;");
  EXPECT_FALSE(read_layout("", layout).ok());
  EXPECT_THAT(read_layout("version 21803\nstructure A_t 4\nfield x\n", layout).to_string(),
              HasSubstr("has a line 'field x'"));
}

}  // namespace
}  // namespace lockstep::benchmarks
