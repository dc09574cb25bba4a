"""The page that people read: `results/<study>/index.html`, one file that needs nothing else, the answer first.

`write.py` puts it together from what `about.py` says of the study. `answer.py` has the sentences of its first screen,
`spent.py` the bill, `tables.py` the tables (made by `rows.py`), `picture.py` the figures; `page.html.jinja`,
`page.css` and `page.js` are what the browser gets. Whatever comes from a study is text to the page, never HTML.
"""
