"""This script catches every exception."""

from small import step, train


while True:
    try:
        open("kept", "w").write("1")
        step()
        break
    except BaseException:
        pass
train()
