"""This script writes through a library."""

import sqlite3

c = sqlite3.connect("d.db")
c.execute("create table t (x)")
c.commit()

from small import train


train()
