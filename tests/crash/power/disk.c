/* A disk that forgets what was not synced; `disk.py` loads this into a database's processes.
 *
 * Files below $POWER_ROOT are written as ever. $POWER_SHADOW holds what a disk would hold after a loss of power:
 *   inodes/NUMBER   what a file was when it was synced last, by its inode
 *   tree/PATH       the names that are durable, as hard links to those
 *   held/NUMBER     files whose name has gone, so that no new file gets their inode
 * A file's sync makes its content durable, and its first name, as journalling file systems do. Only the directory's
 * sync makes other changes of names durable: a name that has gone or moved stays until then.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *root(void) { return getenv("POWER_ROOT"); }

static const char *shadow(void) { return getenv("POWER_SHADOW"); }

/* No step after this may fail unseen: a test would then take an untrue disk for a true one. */
static void must(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "disk.c: %s: %s\n", what, strerror(errno));
        abort();
    }
}

/* The disk does one thing at a time; whoever takes the power holds this lock from then on. */
static int begin(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/power", shadow());
    int lock = open(path, O_RDWR | O_CLOEXEC);
    must(lock >= 0, path);
    while (flock(lock, LOCK_EX) != 0) must(errno == EINTR, path);
    return lock;
}

static int is_below(const char *path) {
    size_t size = root() ? strlen(root()) : 0;
    return size && strncmp(path, root(), size) == 0 && (path[size] == '/' || path[size] == 0);
}

static void inode_path(char *path, ino_t inode) {
    snprintf(path, PATH_MAX, "%s/inodes/%llu", shadow(), (unsigned long long)inode);
}

static void tree_path(char *durable, const char *path) {
    snprintf(durable, PATH_MAX, "%s/tree%s", shadow(), path + strlen(root()));
}

static void make_parents(const char *durable) {
    char step[PATH_MAX];
    snprintf(step, sizeof step, "%s", durable);
    for (char *slash = step + strlen(shadow()) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        must(mkdir(step, 0700) == 0 || errno == EEXIST, step);
        *slash = '/';
    }
}

static void copy(int from, const char *to) {
    char buffer[1 << 16];
    int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    must(out >= 0, to);
    off_t at = 0;
    for (ssize_t got; (got = pread(from, buffer, sizeof buffer, at)) != 0; at += got) {
        must(got > 0, to);
        must(pwrite(out, buffer, got, at) == got, to);
    }
    must(ftruncate(out, at) == 0, to);
    close(out);
}

static void give_name(const char *path, const char *inode) {
    char durable[PATH_MAX];
    struct stat named, wanted;
    tree_path(durable, path);
    must(stat(inode, &wanted) == 0, inode);
    if (lstat(durable, &named) == 0) {
        if (named.st_ino == wanted.st_ino) return;
        must(unlink(durable) == 0, durable);
    }
    make_parents(durable);
    must(link(inode, durable) == 0, durable);
}

static void sync_file(int from, const char *path, ino_t number) {
    char inode[PATH_MAX];
    struct stat now;
    inode_path(inode, number);
    copy(from, inode);
    must(stat(inode, &now) == 0, inode);
    int has_name = now.st_nlink > 1;
    if (!has_name && stat(path, &now) == 0 && now.st_ino == number) give_name(path, inode);
}

static void forget_missing(const char *path, const char *durable) {
    DIR *names = opendir(durable);
    must(names != NULL, durable);
    for (struct dirent *one; (one = readdir(names));) {
        char here[PATH_MAX], there[PATH_MAX];
        struct stat found;
        if (snprintf(here, sizeof here, "%s/%s", path, one->d_name) < 0) continue;
        if (snprintf(there, sizeof there, "%s/%s", durable, one->d_name) < 0) continue;
        if (lstat(here, &found) == 0 || strcmp(one->d_name, ".") == 0 || strcmp(one->d_name, "..") == 0) continue;
        if (one->d_type == DT_DIR) {
            forget_missing(here, there);
            must(rmdir(there) == 0, there);
        } else {
            must(unlink(there) == 0, there);
        }
    }
    closedir(names);
}

static void sync_directory(const char *path) {
    char durable[PATH_MAX], inode[PATH_MAX], here[PATH_MAX];
    struct stat found, known;
    tree_path(durable, path);
    make_parents(durable);
    must(mkdir(durable, 0700) == 0 || errno == EEXIST, durable);
    DIR *names = opendir(path);
    must(names != NULL, path);
    for (struct dirent *one; (one = readdir(names));) {
        if (snprintf(here, sizeof here, "%s/%s", path, one->d_name) < 0 || lstat(here, &found) != 0) continue;
        if (S_ISREG(found.st_mode)) {
            inode_path(inode, found.st_ino);
            if (stat(inode, &known) != 0) { /* a name without what was never synced */
                int empty = open(inode, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
                must(empty >= 0, inode);
                close(empty);
            }
            give_name(here, inode);
        } else if (S_ISDIR(found.st_mode) && one->d_name[0] != '.') {
            tree_path(durable, here);
            must(mkdir(durable, 0700) == 0 || errno == EEXIST, durable);
        }
    }
    closedir(names);
    tree_path(durable, path);
    forget_missing(path, durable);
}

/* What the disk keeps beyond the name that is about to go must not become another file's. */
static void hold(int directory, const char *path) {
    char inode[PATH_MAX], held[PATH_MAX];
    struct stat found, known;
    if (!root() || fstatat(directory, path, &found, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(found.st_mode)) return;
    inode_path(inode, found.st_ino);
    if (stat(inode, &known) != 0) return;
    snprintf(held, sizeof held, "%s/held/%llu", shadow(), (unsigned long long)found.st_ino);
    must(linkat(directory, path, AT_FDCWD, held, 0) == 0 || errno == EEXIST || errno == ENOENT, held);
}

static int sync_any(int number) {
    char link_path[64], path[PATH_MAX];
    struct stat now;
    snprintf(link_path, sizeof link_path, "/proc/self/fd/%d", number);
    ssize_t size = root() ? readlink(link_path, path, sizeof path - 1) : 0;
    if (size <= 0) return 0;
    path[size] = 0;
    if (!is_below(path) || fstat(number, &now) != 0) return 0;
    int lock = begin();
    if (S_ISDIR(now.st_mode)) {
        sync_directory(path);
    } else if (S_ISREG(now.st_mode)) {
        int from = open(link_path, O_RDONLY | O_CLOEXEC);
        must(from >= 0, path);
        sync_file(from, path, now.st_ino);
        close(from);
    }
    close(lock);
    return 0;
}

int fsync(int number) { return root() ? sync_any(number) : (int)syscall(SYS_fsync, number); }

int fdatasync(int number) { return root() ? sync_any(number) : (int)syscall(SYS_fdatasync, number); }

int unlinkat(int directory, const char *path, int flags) {
    if (!(flags & AT_REMOVEDIR)) hold(directory, path);
    return (int)syscall(SYS_unlinkat, directory, path, flags);
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

int remove(const char *path) {
    return unlink(path) == 0 ? 0 : errno == EISDIR ? (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR) : -1;
}

int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags) {
    hold(to_directory, to);
    return (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);
}

int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    return renameat2(from_directory, from, to_directory, to, 0);
}

int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
