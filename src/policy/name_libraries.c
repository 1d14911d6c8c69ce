// SPDX-License-Identifier: Apache-2.0
#include "policy/name_libraries.h"

#include <dlfcn.h>
#include <errno.h>
#include <idn2.h>
#include <libpsl.h>
#include <stdatomic.h>
#include <string.h>

enum function { TO_ASCII, TO_UNICODE, BUILTIN, IS_PUBLIC_SUFFIX, FUNCTION_COUNT };

#ifdef WEIR_STATIC
/* They are in the program. */
static void *find(enum function f)
{
	static void *const functions[FUNCTION_COUNT] = {
		[TO_ASCII] = idn2_to_ascii_8z,
		[TO_UNICODE] = idn2_to_unicode_8z8z,
		[BUILTIN] = psl_builtin,
		[IS_PUBLIC_SUFFIX] = psl_is_public_suffix2,
	};

	return functions[f];
}
#else
/* The version that the headers of the build belong to. */
#define LIBIDN2 "libidn2.so.0"
#define LIBPSL	"libpsl.so.5"

static const struct {
	const char *library, *name;
} functions[FUNCTION_COUNT] = {
	[TO_ASCII] = { LIBIDN2, "idn2_to_ascii_8z" },
	[TO_UNICODE] = { LIBIDN2, "idn2_to_unicode_8z8z" },
	[BUILTIN] = { LIBPSL, "psl_builtin" },
	[IS_PUBLIC_SUFFIX] = { LIBPSL, "psl_is_public_suffix2" },
};

/* A loaded library stays. Two threads that come first find the same. */
static void *find(enum function f)
{
	static _Atomic(void *) found[FUNCTION_COUNT];
	void *here = atomic_load(&found[f]), *library;

	if (here)
		return here;
	library = dlopen(functions[f].library, RTLD_NOW | RTLD_LOCAL);
	here = library ? dlsym(library, functions[f].name) : NULL;
	atomic_store(&found[f], here);
	return here;
}
#endif

int name_to_ascii(const char *text, char **ret)
{
	typeof(&idn2_to_ascii_8z) convert = find(TO_ASCII);
	const int flags = IDN2_NONTRANSITIONAL | IDN2_NFC_INPUT;

	if (!convert)
		return -ELIBACC;
	return convert(text, ret, flags) == IDN2_OK ? 0 : -EINVAL;
}

int name_to_unicode(const char *ascii, char **ret)
{
	typeof(&idn2_to_unicode_8z8z) convert = find(TO_UNICODE);

	if (!convert)
		return -ELIBACC;
	return convert(ascii, ret, 0) == IDN2_OK ? 0 : -EINVAL;
}

int name_is_public_suffix(const char *name, bool is_private)
{
	const int type = is_private ? PSL_TYPE_PRIVATE | PSL_TYPE_NO_STAR_RULE
				    : PSL_TYPE_ICANN;
	typeof(&psl_builtin) builtin = find(BUILTIN);
	typeof(&psl_is_public_suffix2) is_suffix = find(IS_PUBLIC_SUFFIX);
	const psl_ctx_t *list = builtin ? builtin() : NULL;

	if (!list || !is_suffix)
		return -ELIBACC;
	return is_suffix(list, name, type) != 0;
}

static bool is_any_suffix(const char *name)
{
	return name_is_public_suffix(name, false) == 1 ||
	       name_is_public_suffix(name, true) == 1;
}

const char *name_registrable(const char *name)
{
	const char *label = name, *dot;

	while ((dot = strchr(label, '.')) && strchr(dot + 1, '.') &&
	       !is_any_suffix(dot + 1))
		label = dot + 1;
	return label;
}
