"""Every name of ours in docs/guide/operations-torch.md is declared in a public header, every public
function of a header of operations stands there or is excused here, and the counts are right."""
import os
import re
import unittest

SOURCE = os.environ.get('TUTTI_SOURCE_DIR',
                        os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
PAGE = os.path.join(SOURCE, 'docs', 'guide', 'operations-torch.md')
INCLUDE = os.path.join(SOURCE, 'include', 'tutti')
NEW = ['op_index.h', 'op_pad.h', 'op_activation.h', 'op_margin_loss.h', 'op_likelihood.h',
       'op_volume.h', 'op_fractional.h', 'op_vocabulary.h', 'nn_vocabulary.h',
       'op_feature.h', 'nn_functions.h', 'op_attention.h', 'nn_transformer.h']
EXCUSED = {'tutti_topk_smallest'}  # an argument of topk


def declared(names):
    found = set()
    for name in names:
        with open(os.path.join(INCLUDE, name), encoding='utf-8') as file:
            found |= set(re.findall(r'TUTTI_API[^;]*?\b(tutti_\w+)\s*[(;]', file.read()))
    return found


class OperationsTorch(unittest.TestCase):
    def setUp(self):
        with open(PAGE, encoding='utf-8') as file:
            self.text = file.read()
        self.names = set(re.findall(r'`(tutti_\w+)`', self.text))

    def test_names_exist(self):
        self.assertGreater(len(self.names), 100)
        self.assertEqual(self.names - declared(os.listdir(INCLUDE)), set())

    def test_new_operations_stand_there(self):
        self.assertEqual(declared(NEW) - self.names - EXCUSED, set())

    def test_counts_are_right(self):
        stated = re.search(r'Of (\d+) functions (\d+) are here, of (\d+) classes (\d+)', self.text)
        for title, rows, have in (('torch.nn.functional', 1, 2), ('torch.nn', 3, 4)):
            part = self.text.split('## %s\n' % title)[1].split('\n## ')[0]
            cells = [row.split('|')[2].strip() for row in part.split('\n') if row.startswith('| `')]
            self.assertEqual(len(cells), int(stated.group(rows)))
            self.assertEqual(sum(cell != '' for cell in cells), int(stated.group(have)))


if __name__ == '__main__':
    unittest.main()
