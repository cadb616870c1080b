"""What a process begins with that fills an upload as another user."""

from __future__ import annotations

from typing import Final

PRELUDE: Final = """
import json, mmap, os, shutil, sys
from pathlib import Path
from tests.system.daemon import Client
from weightd.client import Client as Weightd, putting
# After the imports: the interpreter may be where only root may read.
key, user, outside = sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
os.umask(0o077)
os.setgroups([]); os.setgid(user); os.setuid(user)
client = Client(Path(sys.argv[1]))
def call(method, path, asked=None):
    told = {'Content-Type': 'application/json'} if asked else {}
    answer = client.call(method, path, asked and json.dumps(asked).encode(), told)
    return answer.json() if answer.body else {}
def begin(**files):
    announced = [{'path': path.replace('__', '/'), 'bytes': size} for path, size in files.items()]
    return call('POST', '/v1/uploads', {'key': key, 'files': announced})
def commit(upload):
    return call('POST', '/v1/uploads/' + upload['id'] + '/commit')
def refused(act, *arguments, **more):
    try:
        act(*arguments, **more)
    except OSError as error:
        return error.strerror
    return None
def own(path, data=b'12'):
    '''A file of the writer's own in the place of the one that was made for him.'''
    path.unlink()
    path.write_bytes(data)
    path.chmod(0o644)
told = {}
"""
"""Its arguments are the daemon's socket, a key, a user, and a place of that user's elsewhere.

What it puts into ``told`` is what the test asks for.
"""
