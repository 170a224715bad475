# Plug-ins of the mpi engine: one shared object for each MPI that is installed, none without. They
# are loaded when they are asked for; nothing else is linked with an MPI.
pkg_check_modules(OPENMPI QUIET IMPORTED_TARGET ompi-c)
pkg_check_modules(MPICH QUIET IMPORTED_TARGET mpich)

function(tutti_mpi_plugin flavour)
  add_library(tutti_mpi_${flavour} MODULE src/comm/backend/mpi/mpi_plugin.c)
  target_include_directories(tutti_mpi_${flavour} PRIVATE src)
  target_compile_options(tutti_mpi_${flavour} PRIVATE -O3) # its reductions are loops
  target_link_libraries(tutti_mpi_${flavour} PRIVATE ${ARGN} Threads::Threads)
  install(TARGETS tutti_mpi_${flavour} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti)
endfunction()

if(OPENMPI_FOUND)
  tutti_mpi_plugin(openmpi PkgConfig::OPENMPI)
endif()
if(MPICH_FOUND)
  tutti_mpi_plugin(mpich PkgConfig::MPICH)
endif()
