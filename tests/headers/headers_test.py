"""Every public header compiles alone, in C and in C++, and so do its examples.

An example is the indented block behind "Example:" in a comment: the opening one, or that of a
section. Its paragraphs that
begin with #include, typedef, struct, enum or static, or that are a function, stand at file scope;
all others together are the body of a function that returns tutti_status_t. All public headers are
included, and the names in GIVEN may be used without a declaration. Examples that put nothing at
file scope are compiled as one program; where it is refused, each alone, to tell which.
"""
import os
import re
import subprocess
import unittest

SOURCE = os.environ.get('TUTTI_SOURCE_DIR',
                        os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
INCLUDE = os.path.join(SOURCE, 'include')
STRICT = ['-Wall', '-Wextra', '-Wpedantic', '-Wshadow', '-Wundef', '-Wcast-qual', '-Wformat=2',
          '-Werror']
COMPILERS = {
    'c': [os.environ.get('CC', 'cc'), '-x', 'c', '-std=c11', '-Wstrict-prototypes',
          '-Wmissing-prototypes'],
    'c++': ['g++', '-x', 'c++', '-std=c++11'],
}
EXAMPLE = [os.environ.get('CC', 'cc'), '-x', 'c', '-std=c11', '-D_GNU_SOURCE', '-Wall', '-Wextra',
           '-Werror', '-Wno-unused']
STANDARD = ['assert', 'inttypes', 'math', 'stdbool', 'stddef', 'stdint', 'stdio', 'stdlib',
            'string']
GIVEN = {
    'argc': 'int argc',
    'argv': 'char **argv',
    'rank': 'int rank',
    'seed': 'uint64_t seed',
    'ctx': 'tutti_context_t *ctx',
    's': 'tutti_scope_t *s',
    'world': 'tutti_group_t *world',
    'group': 'tutti_group_t *group',
    'store': 'tutti_store_t *store',
    'net': 'tutti_module_t *net',
    'opt': 'tutti_optim_t *opt',
    'batches': 'tutti_dataloader_t *batches',
    'ddp': 'tutti_ddp_t *ddp',
    'x': 'tutti_tensor_t *x',
    'y': 'tutti_tensor_t *y',
    'w': 'tutti_tensor_t *w',
    'loss': 'tutti_tensor_t *loss',
}

# An operation of one's own, without what C++11 does not have.
OWN_OPERATION = r"""
#include <tutti/tutti.h>

static tutti_status_t forward(tutti_op_call_t *call)
{
    tutti_tensor_t *x = call->inputs[0];
    TUTTI_CHECK(tutti_op_save(call, x));
    return tutti_tensor_copy(call->outputs[0], tutti_mul(call->scope, x, x));
}

static tutti_op_t make()
{
    tutti_op_t op = {};
    op.name = "square";
    op.infer = tutti_op_infer_same_float;
    op.forward = forward;
    op.backward = [](tutti_op_backward_t *call) -> tutti_status_t {
        tutti_tensor_t *slope = tutti_mul_scalar(call->scope, call->saved[0], 2);
        call->grads[0] = tutti_mul(call->scope, slope, call->grad_outputs[0]);
        return TUTTI_OK;
    };
    return op;
}

tutti_tensor_t *square(tutti_scope_t *s, tutti_tensor_t *x);

tutti_tensor_t *square(tutti_scope_t *s, tutti_tensor_t *x)
{
    static const tutti_op_t op = make();
    return tutti_op_run(s, &op, &x, 1, nullptr);
}
"""


def headers():
    return sorted(name for name in os.listdir(os.path.join(INCLUDE, 'tutti'))
                  if name.endswith('.h'))


def examples_of(text):
    """Of the opening comment, and of those of sections."""
    comments = re.findall(r'/\*.*?\*/', text, re.S)
    return [example for example in map(example_of, comments) if example]


def example_of(text):
    """The lines of a comment's example, without their indentation."""
    comment = text[:text.index('*/')].split('\n')
    lines = [re.sub(r'^ \* ?', '', line) for line in comment]
    starts = [i for i, line in enumerate(lines) if line.rstrip().endswith('Example:')]
    block = []
    for line in lines[starts[0] + 1:] if starts else []:
        if line.strip() and not line.startswith('    '):
            break
        block.append(line[4:])
    return '\n'.join(block).strip('\n')


def paragraphs_of(example):
    """Blocks between blank lines, but a brace holds its lines together."""
    block, depth = [], 0
    for line in example.split('\n') + ['']:
        if not line.strip() and depth == 0:
            if block:
                yield '\n'.join(block)
            block = []
        else:
            block.append(line)
            depth += line.count('{') - line.count('}')


def stands_at_file_scope(paragraph):
    return bool(re.match(r'(#|typedef|struct \w+ \{|enum \w* ?\{|static )', paragraph)
                or re.search(r'^\{', paragraph, re.M) and re.match(r'[a-z].*\)$', paragraph, re.M))


def has_outside(example):
    return any(stands_at_file_scope(paragraph) for paragraph in paragraphs_of(example))


def function_of(example, known, function='tutti_example'):
    """(what stands at file scope, the function)"""
    outside, inside = [], []
    for paragraph in paragraphs_of(example):
        (outside if stands_at_file_scope(paragraph) else inside).append(paragraph)
    body = '\n\n'.join(inside)
    code = re.sub(r'"(\\.|[^"\\])*"', '""', re.sub(r'//.*', '', body))
    given = []
    for name, declaration in GIVEN.items():
        declared = re.search(r'\w\s[\s*]*%s( =|;|,|\[)' % name, code)
        type_name = declaration.split()[0]
        is_known = type_name in known or not type_name.startswith('tutti_')
        if is_known and re.search(r'(?<![\w.>])%s\b' % name, code) and not declared:
            given.append(declaration)
    return '\n\n'.join(outside), 'tutti_status_t %s(%s)\n{\n%s\nreturn TUTTI_OK;\n}\n' % (
        function, ', '.join(given) or 'void', body)


def includes_of(header=None):
    names = ['tutti/' + header] if header else []
    names += [name + '.h' for name in STANDARD] + ['tutti/' + name for name in headers()]
    return '\n'.join('#include <%s>' % name for name in names)


def program_of(header, example, known):
    return '\n\n'.join([includes_of(header), *function_of(example, known)])


def compile_text(command, text):
    """What the compiler says; '' is success. An assembler would say nothing more."""
    result = subprocess.run(command + ['-I' + INCLUDE, '-S', '-o', '/dev/null', '-'], input=text,
                            capture_output=True, text=True, check=False)
    return '' if result.returncode == 0 else result.stderr or 'failed'


class Headers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        texts = [read_header(name) for name in headers()]
        cls.known = set(re.findall(r'\btutti_\w+_t\b', '\n'.join(texts)))

    def compile_example(self, name, example):
        text = program_of(name, example, self.known)
        said = compile_text(EXAMPLE, text)
        self.assertEqual(said, '', '\n' + said + text[text.index('\n\n'):])

    def test_examples_compile(self):
        examples = [(name, example) for name in headers()
                    for example in examples_of(read_header(name)) if not has_outside(example)]
        text = includes_of() + ''.join(
            '\n\n' + function_of(example, self.known, 'tutti_example_%d' % number)[1]
            for number, (_, example) in enumerate(examples))
        said = compile_text(EXAMPLE, text)
        if said:
            for name, example in examples:
                self.compile_example(name, example)
        self.assertEqual(said, '', '\n' + said)

    def test_a_broken_header_is_refused(self):
        for language, command in COMPILERS.items():
            with self.subTest(language):
                self.assertNotEqual(compile_text(command + STRICT, 'int f(size_t n);\n'), '')

    def test_an_operation_of_ones_own_may_be_cpp(self):
        strict = COMPILERS['c++'] + STRICT
        self.assertEqual(compile_text(strict, OWN_OPERATION), '')
        missing = OWN_OPERATION.replace('call->saved[0]', 'call->saved_tensors[0]')
        self.assertIn('saved_tensors', compile_text(strict, missing))

    def test_a_broken_example_is_refused(self):
        for example in ('tutti_no_such_call();', 'int x = "text";', 'return nothing;'):
            text = program_of('status.h', example, self.known)
            self.assertNotEqual(compile_text(EXAMPLE, text), '', example)

    def test_an_example_may_hold_declarations_and_statements(self):
        example = 'static int twice(int n)\n{\n    int m = n;\n\n    return 2 * m;\n}\n\n' \
                  'int n = twice(argc);\nif (n > 2) {\n    puts(argv[1]);\n}'
        self.assertEqual(compile_text(EXAMPLE, program_of('status.h', example, self.known)), '')

    def test_an_optimizer_of_a_user_may_be_c_plus_plus(self):
        with open(os.path.join(SOURCE, 'tests', 'conform', 'own_optimizers.h'),
                  encoding='utf-8') as file:
            text = file.read()
        for language, command in COMPILERS.items():
            with self.subTest(language):
                said = compile_text(command + STRICT + ['-Wno-unused'], text)
                self.assertEqual(said, '', said)


def read_header(name):
    with open(os.path.join(INCLUDE, 'tutti', name), encoding='utf-8') as file:
        return file.read()


def add_header(name):
    def test(self):
        for language, command in COMPILERS.items():
            with self.subTest(language):
                said = compile_text(command + STRICT, '#include <tutti/%s>\n' % name)
                self.assertEqual(said, '', '\n' + said)

    def test_example(self):
        examples = examples_of(read_header(name))
        self.assertNotEqual(examples, [], 'has no example')
        for example in examples:
            if has_outside(example):
                self.compile_example(name, example)
    stem = name[:-2]
    setattr(Headers, 'test_%s_stands_alone' % stem, test)
    setattr(Headers, 'test_%s_has_examples' % stem, test_example)


for header_name in headers():
    add_header(header_name)

if __name__ == '__main__':
    unittest.main(verbosity=2)
