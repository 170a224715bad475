# Toolchain: 64-bit ARM, on a machine of another kind. TUTTI_SYSROOT holds Debian's arm64 packages
# (tools/check_arm unpacks them); what is built runs in qemu's user mode.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TUTTI_SYSROOT)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT ${TUTTI_SYSROOT})
set(CMAKE_FIND_ROOT_PATH ${TUTTI_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${TUTTI_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
    ${TUTTI_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${TUTTI_SYSROOT}/usr/share/pkgconfig)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${TUTTI_SYSROOT})
