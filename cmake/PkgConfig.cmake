# reshard_pkg_config(COMPONENT...): reshard-COMPONENT.pc for builds without CMake, from what the targets link. The
# libraries are archives, so what they link privately is needed, too. Relocatable: the prefix is where the file lies.
function(reshard_pkg_config)
  foreach(component IN LISTS ARGN)
    get_target_property(links reshard_${component} LINK_LIBRARIES)
    list(FILTER links EXCLUDE REGEX "BUILD_INTERFACE|nlohmann_json")
    list(REMOVE_DUPLICATES links)
    set(requires "")
    set(libs "-L\${libdir} -lreshard_${component}")
    foreach(link IN LISTS links)
      if(link MATCHES "^reshard_(.*)$")
        list(APPEND requires "reshard-${CMAKE_MATCH_1} = ${PROJECT_VERSION}")
      elseif(link MATCHES "^absl::(.*)$")
        list(APPEND requires absl_${CMAKE_MATCH_1})
      elseif(link STREQUAL "xxHash::xxhash")
        list(APPEND requires libxxhash)
      elseif(link STREQUAL "libdeflate::libdeflate")
        list(APPEND requires libdeflate)
      elseif(link STREQUAL "Threads::Threads")
        string(APPEND libs " -pthread")
      elseif(link STREQUAL CMAKE_DL_LIBS OR link STREQUAL "${CMAKE_DL_LIBS}")
        string(APPEND libs " -l${CMAKE_DL_LIBS}")
      else()
        message(FATAL_ERROR "reshard-${component}.pc: what is ${link} called by pkg-config?")
      endif()
    endforeach()
    list(JOIN requires ", " requires)
    file(WRITE ${PROJECT_BINARY_DIR}/reshard-${component}.pc
"prefix=\${pcfiledir}/../..
libdir=\${pcfiledir}/..
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}

Name: reshard-${component}
Description: ${PROJECT_DESCRIPTION}: ${component}
Version: ${PROJECT_VERSION}
Requires: ${requires}
Libs: ${libs}
Cflags: -std=c++20 -I\${includedir}
")
    install(FILES ${PROJECT_BINARY_DIR}/reshard-${component}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
  endforeach()
endfunction()
