"""Many runs at once: rows, columns, filters, groups, overlays. For server, folder and terminal.

`query` is the filter language, `table` turns runs into rows, `overlay` puts their curves together. They take
values and return values; `folder` reads run directories, and the server reads its database.
"""
