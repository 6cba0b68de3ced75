# Every verb lives in dev.py (Python only); a machine without make runs `python3 dev.py VERB`.
VERBS := setup demo test gpu-check lint types protos waiter lock sbom check clean
.PHONY: $(VERBS) help
help:
	@python3 dev.py --help
$(VERBS):
	@python3 dev.py $@
