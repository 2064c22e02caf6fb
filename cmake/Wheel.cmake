# What the package for pip has below its folder `lockstep`, beside the modules (pyproject.toml, ci/wheel). The program looks there
# as it looks in a prefix:
#   bin/lockstep               the program, with the lanes sim and gloo, and planted bugs in the simulator
#   include/                   lockstep_subject.h, and lockstep_orders.h for `lockstep orders --library FILE.so`
#   share/lockstep/orders/     the Python part of `lockstep orders`
#   share/lockstep/corpus/     the kept cases, for `lockstep corpus check`
#   licenses/                  of the libraries that are in it, as the packages of Debian have them
# The component `wheel` is in no other installation.
function(lockstep_wheel)
  install(${ARGN} COMPONENT wheel EXCLUDE_FROM_ALL)
endfunction()

if(TARGET lockstep)
  install(TARGETS lockstep RUNTIME DESTINATION bin COMPONENT wheel EXCLUDE_FROM_ALL)
  lockstep_wheel(FILES ${PROJECT_SOURCE_DIR}/properties/subject/lockstep_subject.h
                  ${PROJECT_SOURCE_DIR}/properties/orders/lockstep_orders.h DESTINATION include)
  lockstep_wheel(FILES ${PROJECT_SOURCE_DIR}/properties/orders/measure.py DESTINATION share/lockstep/orders)
  file(GLOB adapters ${PROJECT_SOURCE_DIR}/properties/orders/adapters/*.py ${PROJECT_SOURCE_DIR}/properties/orders/adapters/*.cc)
  lockstep_wheel(FILES ${adapters} DESTINATION share/lockstep/orders/adapters)
  file(GLOB_RECURSE cases RELATIVE ${PROJECT_SOURCE_DIR}/properties ${PROJECT_SOURCE_DIR}/properties/corpus/*.json)
  foreach(case ${cases})
    get_filename_component(folder ${case} DIRECTORY)
    lockstep_wheel(FILES ${PROJECT_SOURCE_DIR}/properties/${case} DESTINATION share/lockstep/${folder})
  endforeach()
  file(GLOB licences /usr/share/doc/libhiredis[0-9]*/copyright)  # this one and the next three are Gloo's
  foreach(library libibverbs1 libnl-3-200 libnl-route-3-200 libboost-context-dev libcli11-dev libelf-dev libexpected-dev libfmt-dev
                  libgloo-dev libjemalloc-dev libjs-chart.js librapidcheck-dev libssl-dev libxxhash-dev nlohmann-json3-dev)
    list(APPEND licences /usr/share/doc/${library}/copyright)
  endforeach()
  foreach(licence ${licences})
    if(EXISTS ${licence})
      string(REGEX REPLACE "^/usr/share/doc/(.*)/copyright$" "\\1" library ${licence})
      lockstep_wheel(FILES ${licence} DESTINATION licenses RENAME ${library}.txt)
    endif()
  endforeach()
endif()
