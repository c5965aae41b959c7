# What `cpack` makes in a build (cpack -G DEB, cpack -G TGZ): `reshard`, the command, and `libreshard-dev`, what C++
# programs are built with.
set(CPACK_PACKAGE_NAME reshard)
set(CPACK_PACKAGE_VENDOR "The reshard authors")
set(CPACK_PACKAGE_CONTACT "The reshard authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_COMPONENTS_ALL command development)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_STRIP_FILES ON)
# One archive with everything, two Debian packages.
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME reshard)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS "libcurl4 | libcurl4t64")  # https sources
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libreshard-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libabsl-dev, nlohmann-json3-dev, libxxhash-dev, libdeflate-dev")
set(CPACK_COMPONENT_COMMAND_DESCRIPTION "The command: plans, pictures, checks, checkpoints.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers and libraries for C++ programs, for CMake and pkg-config.")
include(CPack)
