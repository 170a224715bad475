# Installation: headers, both libraries, the command line, tutti.pc, the CMake package. Everything
# is found relative to where it lies, so that a tree may be moved (DESTDIR, --prefix).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN *.h PATTERN *.hpp)
install(TARGETS tutti EXPORT TuttiTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tutti_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tutti_cli)
  install(TARGETS tutti_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)
install(EXPORT TuttiTargets NAMESPACE Tutti:: DESTINATION ${package_folder})
configure_package_config_file(cmake/TuttiConfig.cmake.in TuttiConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(TuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/TuttiConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/TuttiConfigVersion.cmake
        DESTINATION ${package_folder})

file(RELATIVE_PATH TUTTI_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/tutti.pc.in tutti.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
