# What Tutti is built from, as one target: tutti_dependencies.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET openssl>=3.0)
pkg_check_modules(DW REQUIRED IMPORTED_TARGET libdw)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)

add_library(tutti_dependencies INTERFACE)
target_link_libraries(tutti_dependencies INTERFACE
  Threads::Threads PkgConfig::UV PkgConfig::JANSSON PkgConfig::XXHASH PkgConfig::HWLOC
  PkgConfig::ZLIB PkgConfig::OPENSSL PkgConfig::DW
  PkgConfig::PNG PkgConfig::JPEG m dl)
