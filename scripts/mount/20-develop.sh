# What developers do: git, make, python.

git_here() {
    git -c user.name=tester -c user.email=tester@example.org -c gc.autoDetach=false "$@"
}

# must COMMAND...: says what failed and leaves the subshell.
must() {
    "$@" || { echo "failed ($?): $*"; exit 1; }
}

git_life() {
    local repo=$mnt/repo crate
    rm -rf "$repo" && mkdir "$repo" || return 1
    while read -r crate; do
        cp -a "$crate" "$repo/" || return 1
        [ "$(find "$repo" -type f | wc -l)" -lt 1150 ] || break
    done < <(find "$tree/crates" "$tree/made" -mindepth 1 -maxdepth 1 2>/dev/null | sort)
    find "$repo" -name .gitignore -delete
    (
        cd "$repo" || exit 1
        must git_here init -q . && must git_here add . && must git_here commit -qm first
        n=$(git_here ls-files | wc -l)
        echo "git: $n files"
        must [ "$n" -ge 1000 ] && must clean
        must git_here checkout -qb other
        # Not `head`: it would break the pipe of the first program.
        git_here ls-files -z '*.rs' | sed -zn 1,150p | must xargs -0 sed -i '1i // changed'
        must [ "$(git_here status --porcelain | wc -l)" -ge 100 ] && must git_here commit -qam second && must clean
        must git_here checkout -q - && must clean && must git_here merge -q --no-progress other && must clean
        must git_here gc -q --prune=now --aggressive && must git_here fsck --full --strict && must clean
        must git_here clone -q . ../clone && must diff -r --exclude=.git . ../clone
    ) || return 1
    rm -rf "$mnt/clone"
}

# clean: `status` finds nothing, also when it may not trust what it remembers.
clean() {
    local changed
    changed=$(git_here status --porcelain) && [ -z "$changed" ] && git_here diff --quiet HEAD ||
        { echo "git status is not clean:"; head <<<"$changed"; return 1; }
}

# c_project FOLDER: 120 C files with headers, and a Makefile with dependencies.
c_project() {
    python3 - "$1" <<'PY'
import os, sys
root, n = sys.argv[1], 120
os.makedirs(root + "/src"); os.makedirs(root + "/inc")
for i in range(n):
    open(f"{root}/inc/f{i}.h", "w").write(f"#pragma once\nlong f{i}(long x);\n")
    calls = "".join(f'#include "f{j}.h"\n' for j in (i - 1, i // 2) if 0 <= j < i)
    body = f"f{i - 1}(x + {i})" if i else "x"
    open(f"{root}/src/f{i}.c", "w").write(f'#include <stdio.h>\n#include "f{i}.h"\n{calls}long f{i}(long x) {{ return {body} * 3 % 1000003; }}\n')
open(f"{root}/src/main.c", "w").write(f'#include <stdio.h>\n#include "f{n-1}.h"\nint main(void) {{ printf("%ld\\n", f{n-1}(7)); return 0; }}\n')
open(f"{root}/Makefile", "w").write("""SRC := $(wildcard src/*.c)
OBJ := $(SRC:src/%.c=obj/%.o)
prog: lib.a obj/main.o
	$(CC) -o $@ obj/main.o lib.a
lib.a: $(filter-out obj/main.o,$(OBJ))
	ar rcs $@ $^
obj/%.o: src/%.c | obj
	$(CC) -Iinc -MMD -O1 -c -o $@ $<
obj:
	mkdir -p obj
clean:
	rm -rf obj prog lib.a
-include $(OBJ:.o=.d)
""")
PY
}

c_answer() {
    python3 -c 'x = 7
for i in range(119, 0, -1): x += i
for i in range(120): x = x * 3 % 1000003
print(x)'
}

c_build() {
    local said
    rm -rf "$mnt/c" && c_project "$mnt/c" || return 1
    make -C "$mnt/c" -j2 >"$work/make.out" 2>&1 || { tail "$work/make.out"; return 1; }
    [ "$("$mnt/c/prog")" = "$(c_answer)" ] || { echo "the program says $("$mnt/c/prog"), not $(c_answer)"; return 1; }
    make -C "$mnt/c" -q || { echo "make has something to do again:"; make -C "$mnt/c" -n | head; return 1; }
    touch "$mnt/c/src/f60.c"
    said=$(make -C "$mnt/c" -j2 | grep -c -- ' -c -o ')
    [ "$said" = 1 ] || { echo "after one change $said files were compiled"; return 1; }
    touch "$mnt/c/inc/f119.h"
    said=$(make -C "$mnt/c" -j2 | grep -c -- ' -c -o ')
    [ "$said" = 2 ] && make -C "$mnt/c" -q && [ "$("$mnt/c/prog")" = "$(c_answer)" ]
}

python_packages() {
    local lib=$mnt/python package from before
    from=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["stdlib"])')
    rm -rf "$lib" && mkdir "$lib" || return 1
    for package in json email http xml html logging unittest urllib collections importlib concurrent asyncio; do
        [ ! -d "$from/$package" ] || cp -aL "$from/$package" "$lib/" || return 1
    done
    find "$lib" -name __pycache__ -prune -exec rm -rf {} +
    python3 -m compileall -q -j 2 "$lib" || return 1
    echo "compiled: $(find "$lib" -name '*.pyc' | wc -l)"
    before=$(find "$lib" -name '*.pyc' -printf '%p %T@ %i\n' | sort)
    python3 -m compileall -q -j 2 "$lib" || return 1
    [ "$before" = "$(find "$lib" -name '*.pyc' -printf '%p %T@ %i\n' | sort)" ] || { echo "the second time it compiled again"; return 1; }
    [ "$(wc -l <<<"$before")" -eq "$(find "$lib" -name '*.py' | wc -l)" ] || { echo "files are missing"; return 1; }
    PYTHONPATH=$lib python3 -c '
import email.message, html, http.client, json, sys, unittest, xml.dom.minidom
mods = [email.message, html, http.client, json, unittest, xml.dom.minidom]
bad = [m.__name__ for m in mods if not (m.__file__.startswith(sys.argv[1]) and m.__cached__.startswith(sys.argv[1]))]
assert not bad, bad
assert json.loads(json.dumps({"a": [1, None]})) == {"a": [1, None]}' "$lib"
}

if [ -n "$(why_missing git)" ]; then skip "git" "$(why_missing git)"; else check "git init, add, commit, merge, status, gc, fsck, clone" git_life; fi
if [ -n "$(why_missing make gcc ar)" ]; then skip "a C build" "$(why_missing make gcc ar)"; else check "a C build of 120 files, and nothing to do again" c_build; fi
check "python3 -m compileall, twice, and use" python_packages
check "fsck" fsck
