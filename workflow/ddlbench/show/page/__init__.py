"""The page that people read: `results/<study>/<machine>/index.html`, one file, the answer first.

`write.py` puts it together from what `about.py` says of the study. The answers of its first screen,
and their words, are of room `answers`; `shown.py` is an answer with the small figure beside it,
`explore.py` the series to look into. `spent.py` has the bill, `page_tables.py` the tables (made by
`rows.py`), `picture.py` the figures; `page.html.jinja`, `page.css` and `page.js` are what the
browser gets. Whatever comes from a study is text to the page, never HTML.
"""
