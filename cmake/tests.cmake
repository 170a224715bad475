# Tests. Each is a process with a deadline; its file name says what it is:
#
#   foo_test.c            beside foo.c or below tests/: a cmocka program, label quick
#   foo_full_test.c       the same, label full: make check-all and CI only, a longer deadline
#   foo_long_test.c       the same, label long: make check-long only, hours
#   tests/*/foo_test.py   a script, also foo_test.sh; _full_ as above; label repo if it looks at
#                         sources or packages and would learn nothing from a sanitizer
#   tests/fuzz/foo_fuzz.c a libFuzzer target under TUTTI_FUZZ; elsewhere a test that replays its
#                         corpus (tests/fuzz/corpus/foo/) with every prefix and some changed bytes
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
# Itself: what is found may be a script that looks for it (pyenv), at every start.
execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sys; print(sys.executable)"
  OUTPUT_VARIABLE TUTTI_PYTHON OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)

set(TUTTI_TEST_ENVIRONMENT
  "TUTTI_SOURCE_DIR=${PROJECT_SOURCE_DIR}" "TUTTI_BINARY_DIR=${CMAKE_BINARY_DIR}"
  "CC=${CMAKE_C_COMPILER}" "PYTHONDONTWRITEBYTECODE=1"
  "ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:allocator_may_return_null=1")

function(tutti_test name)
  add_test(NAME ${name} COMMAND ${ARGN})
  set(labels quick)
  set(timeout ${TUTTI_TEST_TIMEOUT})
  if(name MATCHES "_full(_test)?$")
    set(labels full)
    math(EXPR timeout "${TUTTI_TEST_TIMEOUT} * 2")
  elseif(name MATCHES "_long(_test)?$")
    set(labels long)
    math(EXPR timeout "${TUTTI_TEST_TIMEOUT} * 48")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout}
    ENVIRONMENT "${TUTTI_TEST_ENVIRONMENT}")
endfunction()

# Of the long matrix of a test that is there one case in `share` is quick; all of them are full, in
# the test's variant foo_full. The draw's seed and share are printed (core/base/draw_testing.h,
# tests/multi/draws.py).
function(tutti_test_drawn name share)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "TUTTI_TEST_SHARE=${share}")
  string(REGEX REPLACE "_test$" "_full" full ${name})
  if(TARGET ${name})
    tutti_test(${full} ${name})
  else()
    file(GLOB script tests/*/${name}.py)
    tutti_test(${full} ${TUTTI_PYTHON} ${script})
  endif()
endfunction()

# Some 250 programs are linked with the whole library: lld does one in a third of the time of bfd.
# What is installed is linked by the compiler's own, and so are tests that use --wrap: linked by lld
# the turns_tests fail, for a reason that is not known.
# A cross compiler does not find it.
if(NOT CMAKE_CROSSCOMPILING)
  find_program(TUTTI_LLD ld.lld)
endif()

function(tutti_test_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE tutti_internal)
  # Tests launch kernels on the CPU, at once: what they look at are the values.
  target_compile_options(${name} PRIVATE -Wno-unused-result)
  target_compile_definitions(${name} PRIVATE TUTTI_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             TUTTI_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(TUTTI_LLD AND NOT name MATCHES "^turns_|_faults_test$")
    target_link_options(${name} PRIVATE -fuse-ld=lld)
  endif()
endfunction()

file(GLOB_RECURSE sources src/*_test.c tests/*_test.c)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  tutti_test_program(${name} ${source})
  target_link_libraries(${name} PRIVATE PkgConfig::CMOCKA)
  tutti_test(${name} ${name})
endforeach()

# The same over tcp, every rank a host of its own; connections prove a key that tests alone use.
file(WRITE ${CMAKE_BINARY_DIR}/tests.key
  "7475747469207465737473206f6e6c793a206e6f20736563726574206174616c\n")
file(CHMOD ${CMAKE_BINARY_DIR}/tests.key PERMISSIONS OWNER_READ OWNER_WRITE)
foreach(name group_test group_calls_test group_fault_test group_hang_test group_new_test
    group_overlap_test group_shrink_test message_test message_fault_test family_stream_test
    group_stream_test stream_work_test group_cause_test)
  tutti_test(${name}_over_tcp ${name})
  set_property(TEST ${name}_over_tcp APPEND PROPERTY ENVIRONMENT
    "TUTTI_WIRES=tcp" "TUTTI_KEY_FILE=${CMAKE_BINARY_DIR}/tests.key")
endforeach()

# Suites whose tensors lie where TUTTI_TEST_DEVICE says (src/core/tensor/device_testing.h): once
# more on the strict device. A random share of the cases is quick, a larger one is full, all of them
# are long. What takes seconds is full.
function(tutti_test_on_strict name program)
  tutti_test(${name} ${program})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "TUTTI_TEST_DEVICE=strict:0" ${ARGN})
endfunction()

tutti_test_on_strict(op_conform_on_strict op_conform_test "TUTTI_TEST_SHARE=32")
tutti_test_on_strict(op_conform_on_strict_full op_conform_test "TUTTI_TEST_SHARE=8")
tutti_test_on_strict(op_conform_on_strict_long op_conform_test)
tutti_test_on_strict(backend_conform_on_strict backend_conform_test "TUTTI_TEST_SHARE=16")
tutti_test_on_strict(backend_conform_on_strict_full backend_conform_full_test "TUTTI_TEST_SHARE=8")
tutti_test_on_strict(backend_conform_on_strict_long backend_conform_full_test)
foreach(name attention_op autograd averaged averaged_written backward_run backward_turns
    batch_norm_op double_backward dropout_op embedding_lookup feature golden_optim golden_samples
    golden_transformer grad_owner hook instance_norm layer_batch_norm layer_conv layer_functions
    layer_multihead_attention layer_norms layer_pool layer_rnn linear_op module module_hooks
    likelihood_loss op_autocast op_misuse op_outputs op_run op_small optim optim_formula
    optim_state own_optimizer pair_loss_op pending_reads recompute recompute_fail recompute_gpt
    saved_hooks tensor zero)
  tutti_test_on_strict(${name}_on_strict ${name}_test)
endforeach()
foreach(name golden_gpt golden_op golden_optim_kinds golden_rnn gradient_check initializers
    op_strange randoms)
  tutti_test_on_strict(${name}_on_strict_full ${name}_test)
endforeach()

# Layouts of checkpoints: a random share of all pairs is quick, all of them are full.
tutti_test_drawn(checkpoint_test 16)
tutti_test_drawn(checkpoint_hosts_test 16)
set_property(TEST checkpoint_memory_test APPEND PROPERTY ENVIRONMENT "TUTTI_TEST_SHARE=48")
tutti_test_drawn(checkpoint_whole_test 4)

# Pipeline schedules: a random share of all sizes is quick, all of them are full.
tutti_test_drawn(pipeline_conform_test 8)
# Pipelines: schedules, models and numbers of ranks.
tutti_test_drawn(pipeline_bits_test 16)
tutti_test_drawn(pipeline_killed_test 12)
tutti_test_drawn(pipeline_failure_test 8)
tutti_test_drawn(pipeline_versions_test 12)
tutti_test_drawn(pipeline_async_test 8)
tutti_test_drawn(pipeline_mesh_test 48)
tutti_test_drawn(pipeline_validate_mesh_test 48)
tutti_test_drawn(pipeline_validate_failure_test 4)
tutti_test_drawn(pipeline_shards_test 32)
tutti_test_drawn(pipeline_mesh_killed_test 72)
# Optimizers with their state on a disk: of what ranks and stages make of them a share is quick.
tutti_test_drawn(ddp_slices_test 8)
# Stages of DDP: a random share of the rows is quick, all of them are full.
tutti_test_drawn(ddp_stages_test 8)

# Plans, hosts, products, optimizers' bits, operations: cases are many, and alike in kind.
tutti_test_drawn(plan_test 3)
tutti_test_drawn(plan_hosts_test 3)
tutti_test_drawn(hosts_conform_test 5)
tutti_test_drawn(matmul_test 3)
tutti_test_drawn(optim_bits_test 3)
tutti_test_drawn(op_conform_test 4)

# The tables of cases that conformance tests walk.
file(GLOB cases tests/conform/op_cases_*.c)
target_sources(op_conform_test PRIVATE tests/conform/op_case_run.c ${cases})
target_sources(op_coverage_test PRIVATE ${cases})
target_sources(op_autocast_test PRIVATE ${cases})
target_sources(op_meta_test PRIVATE ${cases})
file(GLOB cases tests/conform/conform_*.c)
target_sources(backend_conform_test PRIVATE tests/conform/backend_conform.c ${cases})
target_sources(backend_conform_full_test PRIVATE tests/conform/backend_conform.c ${cases})
target_sources(hosts_conform_test PRIVATE tests/conform/backend_conform.c ${cases})

# The simulated world.
file(GLOB sources tests/sim/sim_*.c)
list(FILTER sources EXCLUDE REGEX "_test\\.c$")
target_sources(sim_test PRIVATE ${sources})
target_sources(sim_full_test PRIVATE ${sources})
target_sources(wire_digest_test PRIVATE ${sources})

# Ranks of one host that take turns: where the turn may pass.
set(turns tt_coll_enter tt_coll_leave tt_coll_is_given_up tt_coll_have_arrived
  tt_coll_are_all_done tt_coll_give_up tt_coll_quiesce tt_coll_post tt_coll_post_phase
  tt_node_peers_wake tt_node_peers_idle tt_node_peers_state tt_node_peers_is_gone tt_tree_reduce
  tt_futex_wait)
list(TRANSFORM turns PREPEND "-Wl,--wrap=")
foreach(name turns_test turns_full_test turns_block_test turns_block_full_test)
  target_sources(${name} PRIVATE tests/sim/turns.c)
  target_link_options(${name} PRIVATE ${turns})
endforeach()
target_sources(turns_test PRIVATE tests/sim/turns_calls.c)
target_sources(turns_full_test PRIVATE tests/sim/turns_calls.c)
target_sources(turns_block_test PRIVATE tests/sim/turns_block.c)
target_sources(turns_block_full_test PRIVATE tests/sim/turns_block.c)

# A rank that is killed in a call that a save makes.
target_link_options(whole_faults_test PRIVATE -Wl,--wrap=tutti_all_to_all_uneven)

# A disk that fails; a random share of its failures is quick, all of them are full.
set(calls open close write pread fsync fcntl rename renameat2 mkdir unlink rmdir opendir readdir)
list(TRANSFORM calls PREPEND "-Wl,--wrap=")
target_sources(checkpoint_faults_test PRIVATE tests/disk/disk_faults.c)
target_link_options(checkpoint_faults_test PRIVATE ${calls})
tutti_test_drawn(checkpoint_faults_test 24)

set(calls open pread pwrite fallocate fsync)
list(TRANSFORM calls PREPEND "-Wl,--wrap=")
target_link_options(offload_faults_test PRIVATE ${calls})
tutti_test_drawn(offload_faults_test 24)

# Disks under ranks that have parameters there.
target_link_options(sharded_faults_test PRIVATE -Wl,--wrap=pread -Wl,--wrap=pwrite
  -Wl,--wrap=posix_fallocate)
tutti_test_drawn(sharded_faults_test 24)

# What mpi_test.py starts under mpirun.
file(GLOB sources tests/multi/mpi_conform*.c)
tutti_test_program(mpi_conform ${sources})

# What hang_test.py starts: ranks that do not agree.
tutti_test_program(hang tests/multi/hang.c)

# What silence_full_test.py starts: ranks of which one falls silent.
tutti_test_program(silence tests/multi/silence.c)

# What left_child_test.py starts: a rank that dies and leaves a child behind.
tutti_test_program(left_child tests/multi/left_child.c)

# What checkpoint_cli_test.py starts: it saves checkpoints of known layouts and values.
tutti_test_program(save_layout tests/multi/save_layout.c)
target_link_libraries(save_layout PRIVATE PkgConfig::CMOCKA)

# What checkpoint_kill_test.py starts: a rank that saves until it is killed.
tutti_test_program(save_forever tests/multi/save_forever.c)

# What the tests of docs/formats start: two ranks whose calls they know; a writer of files.
tutti_test_program(format_ranks tests/formats/format_ranks.c)
tutti_test_program(format_files tests/formats/format_files.c)
tutti_test_program(metrics_files tests/formats/metrics_files.c)

file(GLOB scripts tests/*/*_test.py)
foreach(script ${scripts})
  get_filename_component(name ${script} NAME_WE)
  tutti_test(${name} ${TUTTI_PYTHON} ${script})
endforeach()
file(GLOB scripts tests/*/*_test.sh)
foreach(script ${scripts})
  get_filename_component(name ${script} NAME_WE)
  tutti_test(${name} sh ${script})
endforeach()

# Wires and MPIs, the lessons, and what `gpt` and `fashion` are started with.
tutti_test_drawn(conform_test 3)
tutti_test_drawn(examples_test 3)
tutti_test_drawn(fashion_test 3)
tutti_test_drawn(gpt_pipelines_test 2)

# Of the tests under MPI a half is quick, each of them with one of the MPIs that are installed.
set_property(TEST mpi_test APPEND PROPERTY ENVIRONMENT "TUTTI_TEST_SHARE=2")
tutti_test(mpi_each_full ${TUTTI_PYTHON} ${PROJECT_SOURCE_DIR}/tests/multi/mpi_test.py)

# Moments of killing: a random share is quick, all of them are full.
tutti_test_drawn(checkpoint_kill_test 32)
tutti_test_drawn(gpt_kill_test 20)
tutti_test(gpt_kill_long ${TUTTI_PYTHON} ${PROJECT_SOURCE_DIR}/tests/multi/gpt_kill_test.py)
set_property(TEST gpt_kill_long APPEND PROPERTY ENVIRONMENT "TUTTI_TEST_TIMES=5")

tutti_test(tidy ${TUTTI_PYTHON} ${PROJECT_SOURCE_DIR}/tools/tidy
           --library $<TARGET_FILE:tutti> --archive $<TARGET_FILE:tutti_static>
           --formatted ${CMAKE_BINARY_DIR}/formatted)

# Begun first, so that none of them runs on alone at the end: seconds, beside others on two cores.
foreach(name examples_test run_test nodes_test store_tcp_client_test gpt_test gpt_pipelines_test
    store_stranger_test bench_test conform_test fashion_test guide_lines_test group_new_torture_test
    ddp_create_test mpi_test ddp_test hang_test hosts_conform_test plan_large_test tidy)
  set_property(TEST ${name} PROPERTY COST 10)
endforeach()

add_custom_target(fuzzers)
file(GLOB sources tests/fuzz/*_fuzz.c)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" subject ${name})
  if(TUTTI_FUZZ)
    tutti_test_program(${name} ${source})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzzers ${name})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
  else()
    tutti_test_program(${name} ${source} tests/fuzz/replay.c)
    tutti_test(${name} ${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${subject})
  endif()
endforeach()

foreach(name tidy tidy_test mutate_full_test headers_test cpp_test cpp_full_test null_test
             install_test run_tests_test)
  if(TEST ${name})
    set_property(TEST ${name} APPEND PROPERTY LABELS repo)
  endif()
endforeach()

# What a build for 64-bit ARM runs in qemu (tools/check_all arm): kernels, flags, wires, stores. Not
# tcp_wire_test: qemu's TCP_INFO tells nothing of a connection; not matmul_bits_test: it takes
# minutes there, and the digests of gpt say the same of f32.
foreach(name attention_test matmul_test conv_test conv_volume_test xxh3_test map_f64_test map_test
    indexing_test remap_test scan_test sorting_test isa_test channels_test norm_f64_test rows_test
    flat_test optim_steps_test pooling_test multinomial_test random_test recurrent_test
    reduce_dims_test tree_test vmath_test
    alloc_test crc32c_test dtype_test rng_test threads_test heap_test heap_memory_test
    recorder_test turns_test group_test group_small_test group_test_over_tcp message_test
    host_block_test wire_test channel_test
    store_file_test store_conform_test
    safetensors_test ddp_test)
  if(TEST ${name})
    set_property(TEST ${name} APPEND PROPERTY LABELS arm)
  endif()
endforeach()
