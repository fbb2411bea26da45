"""From bundles to the store: what each test touched, compared by blocks of the sources that ran."""
