# about: every shell script parses
# limit: 60
source scripts/test.d/lib.sh
for file in .ci/run scripts/*.sh scripts/test.d/*.sh scripts/mount/*.sh scripts/hosts/*.sh scripts/peers/*.sh; do
    check "bash -n $file" bash -n "$file"
done
finish
