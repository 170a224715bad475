"""What `tutti` says of itself: its verbs, those of verbs, and their options, out of --help."""
import collections
import re
import subprocess

Verb = collections.namedtuple('Verb', 'path about usage options sections')
Option = collections.namedtuple('Option', 'short long argument about')
Section = collections.namedtuple('Section', 'title rows')


def help_of(program, path):
    done = subprocess.run([program, *path, '--help'], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def option_of(line):
    """'  -n, --ranks N   how many' as an Option; None: it is none."""
    found = re.match(r'  (?:-(\w), |    )--([\w-]+)(?: (\S+))?  +(\S.*)$', line)
    return None if found is None else Option(*found.groups())


def sections_of(lines):
    """Blocks 'title:' with rows '  name   text' below."""
    sections = []
    for line in lines:
        row = re.match(r'  (\w\S*) +(\S.*)$', line)
        if re.match(r'\w[\w ]*:$', line):
            sections.append(Section(line[:-1], []))
        elif row and sections:
            sections[-1].rows.append(row.groups())
    return sections


def verb_of(program, path, about):
    lines = help_of(program, path).splitlines()
    usage = '\n'.join(line[len('usage: '):] for line in lines
                      if line.startswith(('usage: tutti', '       tutti')))
    options = [option for option in map(option_of, lines) if option]
    return Verb(path, about, usage, options, sections_of(lines))


def verbs_below(verb):
    """Those of a list; and words that its usage offers beside a NAME: [NAME | word | word]."""
    choice = re.search(r'\[[A-Z]+ \| ([^]]*)\]', verb.usage)
    words = re.findall(r'\w+', choice.group(1)) if choice else []
    listed = [row for section in verb.sections if section.title == 'verbs' for row in section.rows]
    return listed + [(word, '%s: %s' % (verb.about, word)) for word in words]


def names_of(verb):
    """What a verb wants besides options, one of them: the calls that `tutti bench` measures."""
    return [name for section in verb.sections if section.title != 'verbs'
            for name, _ in section.rows]


def all_verbs(program):
    """The program itself, its verbs, and theirs, each behind the one that it belongs to."""
    found, waiting = [], [((), 'distributed deep-learning training in C')]
    while waiting:
        path, about = waiting.pop(0)
        verb = verb_of(program, list(path), about)
        found.append(verb)
        waiting = [((*path, name), text) for name, text in verbs_below(verb)] + waiting
    return found
