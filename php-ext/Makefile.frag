# The profile of Cargo.toml to build with; `fast` is quicker to build.
ROWCLAIM_PROFILE ?= release

.PHONY: rowclaim-cargo
rowclaim-cargo:
	cd "$(ROWCLAIM_WORKSPACE)" && PHP="$(ROWCLAIM_PHP)" PHP_CONFIG="$(ROWCLAIM_PHP_CONFIG)" CARGO_TARGET_DIR="$(ROWCLAIM_TARGET)" \
		"$(CARGO)" build --profile "$(ROWCLAIM_PROFILE)" --locked -p rowclaim-php

$(phplibdir)/rowclaim.so: rowclaim-cargo
	mkdir -p "$(phplibdir)"
	cp "$(ROWCLAIM_TARGET)/$(ROWCLAIM_PROFILE)/librowclaim_php.so" $@.part
	mv $@.part $@
