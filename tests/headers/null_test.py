"""Every public call of the headers about communication, without a handle: a status that names call
and argument, or the value that the header says. None crashes, whatever of its arguments is NULL.

One program is made of the headers themselves, so that no call is left out. It makes each call in a
child, and prints how that ended."""
import os
import re
import subprocess
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE_DIR"]
BINARY = os.environ["TUTTI_BINARY_DIR"]
HEADERS = ("group", "collectives", "messages", "objects", "store", "diagnose", "prepared", "launch")
# Those with handles of communication that are about something else.
OTHERS = ("bench", "checkpoint", "ddp", "modes", "nn_layers", "pipeline_measure",
          "pipeline_run", "placement", "sharded", "status", "tensor_parallel")
HANDLES = {"tutti_group_t": "world", "tutti_store_t": "store", "tutti_mesh_t": "mesh",
           "tutti_work_t": "work", "tutti_prepared_t": "prepared"}
DEADLINE = 100
# The forms of a call have the call's own name in their texts.
FORMS = re.compile(r"^prepare_|(_contributions)?(_(uneven|list|with))?$")
# These take handles, and NULL has a meaning there.
NULL_IS_FINE = {"tutti_trace_release"}
SAFE = {"tutti_group_rank": -1, "tutti_group_size": 0, "tutti_group_local_rank": -1,
        "tutti_group_local_size": 0, "tutti_group_uncanonical_sums": 0, "tutti_group_epoch": 0,
        "tutti_group_translate": -1, "tutti_store_port": 0, "tutti_mesh_dims": 0,
        "tutti_mesh_dim": -1, "tutti_mesh_size": 0, "tutti_mesh_coordinate": -1,
        "tutti_mesh_rank_at": -1, "tutti_work_is_done": 1, "tutti_work_source": -1,
        "tutti_work_tag": -1}
PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <tutti/tutti.h>
%(includes)s
static tutti_group_t *world;
static tutti_store_t *store;
static tutti_mesh_t *mesh;
static tutti_work_t *work;
static tutti_prepared_t *prepared;

%(calls)s

static const struct {
    const char *name;
    void (*make)(void);
} calls[] = {%(table)s};

static int prepare(void)
{
    static const int shape[] = {1};
    static const char *const names[] = {"dp"};
    tutti_tensor_t *x;
    return tutti_init(NULL, &world) < 0 || tutti_store_hash_create(&store) < 0 ||
           tutti_mesh_create(world, 1, shape, names, &mesh) < 0 ||
           tutti_group_tensor(world, TUTTI_F32, TUTTI_SHAPE(4), &x) < 0 ||
           tutti_all_reduce(world, x, TUTTI_SUM, &work) < 0 ||
           tutti_prepare_all_reduce(world, x, TUTTI_SUM, &prepared) < 0;
}

int main(void)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(30);
            if (prepare() != 0) {
                printf("%%s prepare: %%s\n", calls[i].name, tutti_last_error());
                fflush(stdout);
                _exit(1);
            }
            printf("%%s ", calls[i].name);
            calls[i].make();
            fflush(stdout);
            _exit(0);
        }
        int end;
        waitpid(child, &end, 0);
        if (end != 0) {
            printf("%%s crashed: %%d\n", calls[i].name, end);
            fflush(stdout);
        }
    }
    return 0;
}
"""


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def functions():
    """(header, result, name, types of the parameters) of each."""
    for header in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", read(f"include/tutti/{header}.h"), flags=re.DOTALL)
        for result, name, rest in re.findall(r"TUTTI_API\s+([^;()]*?)(\w+)\(([^;]*)\);", text):
            words = re.sub(r"\s+", " ", rest).strip()
            parameters = [] if words == "void" else re.split(r",(?![^()]*\))", words)
            yield header, result.strip(), name, [type_of(one) for one in parameters]


def type_of(parameter):
    if "(*" in parameter:
        return re.sub(r"\(\*\w*\)", "(*)", parameter).strip()
    return re.sub(r"\w+$", "", parameter.strip()).strip()


def handle_of(kind):
    found = re.fullmatch(r"(?:const )?(tutti_\w+_t) \*", kind)
    return HANDLES.get(found[1]) if found else None


def nothing(kind):
    if kind.endswith("*") or kind.endswith("*const") or "(*)" in kind:
        return f"({kind})0"
    return f"({kind}){{0}}" if kind.startswith(("tutti_bytes_t", "tutti_shape_t", "tutti_buffer_t",
                                               "tutti_tensor")) else f"({kind})0"


def statement(result, name, arguments):
    call = f"{name}({', '.join(arguments)})"
    if result == "tutti_status_t":
        return f'const int s = (int){call}; printf("status %d %s\\n", s, s < 0 ? ' \
               "tutti_last_error() : \"\");"
    if result == "void":
        return f'{call}; printf("void\\n");'
    if result.endswith("*"):
        is_text = result.startswith("const char")
        shown = 'printf("text \\"%s\\"\\n", p != NULL ? p : "NULL");' if is_text else \
                'printf("pointer %s\\n", p != NULL ? "there" : "NULL");'
        return f"{result}p = {call}; {shown}"
    return f'printf("number %lld\\n", (long long){call});'


def cases():
    """(name of the case, function, code): all of it NULL; then each handle alone is there."""
    for _, result, name, kinds in functions():
        arguments = [nothing(kind) for kind in kinds]
        yield f"{name}/none", statement(result, name, arguments)
        handles = {index: handle_of(kind) for index, kind in enumerate(kinds) if handle_of(kind)}
        if handles and not name.endswith(("_release", "_retain")):
            given = [handles.get(index, text) for index, text in enumerate(arguments)]
            yield f"{name}/handles", statement(result, name, given)


def run(made):
    calls = "\n".join(f"static void call_{i}(void)\n{{\n    {code}\n}}\n"
                      for i, (_, code) in enumerate(made))
    table = ", ".join(f'{{"{name}", call_{i}}}' for i, (name, _) in enumerate(made))
    includes = "\n".join(f"#include <tutti/{header}.h>" for header in HEADERS)
    with tempfile.TemporaryDirectory() as folder:
        source, program = (os.path.join(folder, name) for name in ("null.c", "null"))
        with open(source, "w", encoding="utf-8") as file:
            file.write(PROGRAM % {"includes": includes, "calls": calls, "table": table})
        library = os.path.join(BINARY, "lib")
        built = subprocess.run(
            [os.environ.get("CC", "cc"), "-std=gnu11", "-I", os.path.join(SOURCE, "include"),
             source, "-o", program, "-L", library, "-ltutti", f"-Wl,-rpath,{library}"],
            text=True, capture_output=True, timeout=DEADLINE)
        if built.returncode != 0:
            raise AssertionError(built.stderr)
        done = subprocess.run([program], text=True, capture_output=True, timeout=DEADLINE,
                              cwd=folder)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if "/" in line), done


class Null(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ends, cls.done = run(list(cases()))
        cls.functions = {name: (result, kinds) for _, result, name, kinds in functions()}

    def test_all_headers_are_there(self):
        found = {name[:-2] for name in os.listdir(os.path.join(SOURCE, "include", "tutti"))
                 if name.endswith(".h")
                 and re.search("|".join(HANDLES), read("include/tutti/" + name))}
        self.assertEqual(found - set(HEADERS) - set(OTHERS), set())

    def test_all_calls_are_there(self):
        self.assertGreater(len(self.functions), 120)
        self.assertIn("tutti_store_list_next", self.functions)

    def test_nothing_crashes(self):
        crashed = [f"{name}: {end}" for name, end in self.ends.items() if "crashed" in end]
        self.assertEqual(crashed, [])
        self.assertEqual(len(self.ends), len(list(cases())), self.done.stderr)

    def test_a_missing_handle_is_named(self):
        for name, (result, kinds) in self.functions.items():
            has_handle = any(handle_of(kind) or kind.endswith("**") for kind in kinds)
            if result != "tutti_status_t" or not has_handle or name in NULL_IS_FINE:
                continue
            with self.subTest(name):
                call = FORMS.sub("", name[len("tutti_"):])
                self.assertRegex(self.ends[name + "/none"],
                                 rf"^status -\d+ {call}\w*: \w+ is NULL$")

    def test_accessors_of_nothing_give_what_is_documented(self):
        for name, value in SAFE.items():
            self.assertEqual(self.ends[name + "/none"], f"number {value}", name)
        for name in ("tutti_group_name", "tutti_store_kind", "tutti_work_error"):
            self.assertEqual(self.ends[name + "/none"], 'text ""', name)
        for name in ("tutti_group_store", "tutti_mesh_group", "tutti_group_retain",
                     "tutti_store_retain", "tutti_mesh_retain", "tutti_work_retain"):
            self.assertEqual(self.ends[name + "/none"], "pointer NULL", name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
